"""Reader of chat completions, from untrusted bytes.

no text is longer than asked for, none holds a secret or half a character
token counts lie between what the texts make possible; where the endpoint's counts do not, they are estimated
half a reply that ended in an error is none
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slim_rl.config import OpenAIConfig
from slim_rl.jsonl import whole_characters
from slim_rl.partners.quoting import one_line
from slim_rl.partners.secrets import SHORTEST_SAID, Secrets

CHARS_PER_TOKEN = 4  # of English text, roughly
LONGEST_TOKEN = 64  # bytes, roughly; the shortest has one
BYTES_PER_TOKEN = 10  # a prompt that was read at more than that was cut
MESSAGE_TOKENS = 4  # what a message takes in addition to its text
TEMPLATE_TOKENS = 4000  # what a server may put before the messages unseen
FREE_OUTPUT = 100_000  # believable output tokens, thoughts included, where the request sets no limit

# OpenAI's finish reason <- those of other servers
FINISH = {
    "length": ("max_tokens", "model_length", "max_length", "max_output_tokens", "repetition", "incomplete"),
    "content_filter": ("safety", "recitation", "prohibited_content", "blocklist", "sensitive", "refusal"),
    "error": ("failed", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource", "overloaded"),
    "tool_calls": ("function_call", "tool_use", "tool_call"),
}
_FINISH = {name: ours for ours, names in FINISH.items() for name in (ours, *names)}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # names of thoughts in a message or a part of its content


class UnreadableError(ValueError):
    """Answer that is not a chat completion."""


class ReportedError(ValueError):
    """Error within a response of status 200: its code, if that is an HTTP status, else 0; and whether it came with half a reply."""

    def __init__(self, status: int, content: str, billed: bool) -> None:
        super().__init__(status)
        self.status, self.content, self.billed = status, content, billed


def read_answer(content: str, body: Mapping[str, Any], config: OpenAIConfig, secrets: Secrets) -> dict[str, Any]:
    """Returns the used parts of a chat completion, JSON-able: what a cassette keeps. Raises ReportedError or UnreadableError.

    Args:
        body: the request, whose size bounds the tokens.

    Returns:
        ``text`` (at most `config.reply_chars` characters; a longer one has the finish reason "length"), ``finish_reason``, ``model``,
        the counts of `count_tokens`, and where there is one ``thought``, ``refusal`` and ``prompt_read`` (`cut_prompt`).
    """
    try:
        data = json.loads(content)
        _raise_reported(data, content)
        choice = data["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        if not isinstance(message.get("content"), str | list | dict | None):
            raise TypeError
        words = _words(message)
        calls_tool = bool(message.get("tool_calls") or message.get("function_call"))
    except ReportedError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        html = " (a web page: is partner.openai.base_url right?)" if content.lstrip()[:1] == "<" else ""
        found = one_line(secrets.redact(content), 60)
        raise UnreadableError(f"the answer is not a chat completion: {found!r}{html}") from None
    texts = {
        kind: secrets.redact(whole_characters("".join(text for what, text in words if what == kind)), SHORTEST_SAID)
        for kind in ("text", "thought", "refusal")
    }
    text = texts.pop("text")
    reason = str(choice.get("finish_reason"))
    reason = "tool_calls" if calls_tool and not text.strip() else _FINISH.get(reason.lower(), reason)
    read = cut_prompt(data.get("usage"), body)
    return {
        **cut(text, one_line(secrets.redact(reason), 40), config),
        "model": one_line(secrets.redact(str(data.get("model"))), 120),
        **count_tokens(data.get("usage"), body, text + texts["thought"]),
        **{kind: one_line(words, config.reply_chars) for kind, words in texts.items() if words.strip()},
        **({} if read is None else {"prompt_read": read}),
    }


def _raise_reported(data: Any, content: str) -> None:
    """Raises ReportedError if the response reports an error, whatever else it holds."""
    data = data[0] if isinstance(data, list) and data else data
    choice = next(iter(data.get("choices") or ()), None)
    ended = _FINISH.get(str((choice or {}).get("finish_reason")).lower()) == "error"
    error = data.get("error") or (choice or {}).get("error")
    if error is None and choice is None and any(data.get(name) for name in ("message", "detail")):
        error = data
    if not error and not ended:
        return
    code = error.get("code") if isinstance(error, dict) else data.get("code")
    status = int(code) if isinstance(code, int | str) and str(code).isdecimal() and 300 <= int(code) < 600 else 0
    raise ReportedError(status, content, billed=choice is not None)


def _words(content: Any, kind: str = "text") -> list[tuple[str, str]]:
    """Returns what a message's content holds, of any shape, as (text, thought or refusal; words)."""
    if isinstance(content, str):
        return [(kind, content)]
    if isinstance(content, list):
        return [words for part in content for words in _words(part, kind)]
    if not isinstance(content, dict):
        return []
    if any(word in str(content.get("type")) for word in ("think", "reason")):
        kind = "thought"
    thoughts = next((content[name] for name in _THOUGHTS if content.get(name)), None)
    words = _words([content.get("content"), content.get("text")], kind)
    return [*_words(thoughts, "thought"), *words, *_words(content.get("refusal"), "refusal")]


def cut(text: str, finish_reason: str, config: OpenAIConfig) -> dict[str, str]:
    """Returns ``text`` and ``finish_reason`` of a reply that may be too long."""
    too_long = len(text) > config.reply_chars
    return {"text": text[: config.reply_chars], "finish_reason": "length" if too_long else finish_reason}


# --- tokens


def count_tokens(usage: Any, body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Returns ``input_tokens``, ``cached_tokens``, ``output_tokens`` and ``estimated`` from a usage field, which may hold anything.

    A count that is missing, or smaller than the text makes possible, is estimated; one that is larger counts as the largest that
    is possible (`most_tokens`), however long the text. Impossible cached tokens count as none.
    """
    prompt, cached, completion = _told(usage)
    most_read, most_written = most_tokens(body)
    written = _bytes(text)
    read, doubted_read = _plausible(prompt, _sent(body) // LONGEST_TOKEN + 1, most_read, guess_input(body))
    output, doubted_output = _plausible(
        completion,
        min(written // LONGEST_TOKEN, most_written),
        most_written,
        min(-(-written // CHARS_PER_TOKEN) + 1, most_written),
    )
    known, doubted_cached = _plausible(cached, 0, read, 0) if cached is not None else (0, False)
    return {
        "input_tokens": read,
        "cached_tokens": 0 if doubted_cached else known,
        "output_tokens": output,
        "estimated": doubted_read or doubted_output or doubted_cached,
    }


def cut_prompt(usage: Any, body: Mapping[str, Any]) -> int | None:
    """Returns the tokens that the endpoint read of a prompt, if they cannot be all of it; None if they can, or it does not say."""
    prompt, cached, _ = _told(usage)
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in (prompt, cached or 0)):
        return None
    read = int(prompt) + int(cached or 0)  # some servers leave the cached ones out
    return read if prompt > 0 and read * BYTES_PER_TOKEN < _sent(body) else None


def _told(usage: Any) -> tuple[Any, Any, Any]:
    """Returns prompt, cached and completion tokens as the endpoint has them; None for what it does not tell."""
    counts = usage if isinstance(usage, Mapping) else {}
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return counts.get("prompt_tokens"), cached, counts.get("completion_tokens")


def most_tokens(body: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the most input and output tokens that a request is ever counted as."""
    limits = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
    output = max((most for most in limits if isinstance(most, int)), default=FREE_OUTPUT)
    return _sent(body) + 100 * len(body["messages"]) + TEMPLATE_TOKENS, output


def guess_input(body: Mapping[str, Any]) -> int:
    """Returns the tokens of a request, estimated from its text."""
    messages = body["messages"]
    return sum(-(-_bytes(message["content"]) // CHARS_PER_TOKEN) + MESSAGE_TOKENS for message in messages)


def _plausible(count: Any, least: int, most: int, guess: int) -> tuple[int, bool]:
    """Returns a count between two bounds, and whether it is not the one given."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not count >= least:
        return guess, True
    return (most, True) if count > most else (int(count), False)


def _sent(body: Mapping[str, Any]) -> int:
    return sum(_bytes(message["content"]) for message in body["messages"])


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
