"""Reader of chat completions, from untrusted bytes.

Invariants:
    No text holds a secret or half a character, and a text longer than `reply_chars` is cut.
    Half a reply that ended in an error is never played.
    A token count that is missing or impossible is estimated from the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slim_rl.config import OpenAIConfig
from slim_rl.jsonl import whole_characters
from slim_rl.partners.quoting import one_line
from slim_rl.partners.secrets import SHORTEST_IN_REPLY, Secrets

CHARS_PER_TOKEN = 4  # roughly, in English text
BYTES_PER_TOKEN = 10  # a prompt counted at more bytes per token was cut
MESSAGE_TOKENS = 4  # tokens of a message in addition to its text
MOST_TOKENS = 10_000_000  # a larger count is impossible

# OpenAI's finish reason <- those of other servers
FINISH = {
    "length": ("max_tokens", "model_length", "max_length", "max_output_tokens", "repetition", "incomplete"),
    "content_filter": ("safety", "recitation", "prohibited_content", "blocklist", "sensitive", "refusal"),
    "error": ("failed", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource", "overloaded"),
    "tool_calls": ("function_call", "tool_use", "tool_call"),
}
_FINISH = {name: standard for standard, names in FINISH.items() for name in (standard, *names)}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # names of thoughts in a message or a part of its content


class UnreadableError(ValueError):
    """Answer that is not a chat completion."""


class ReportedError(Exception):
    """Error within a response of status 200: the response's body, and whether half a reply came with it."""

    def __init__(self, content: str, billed: bool) -> None:
        super().__init__()
        self.content, self.billed = content, billed


def read_answer(content: str, body: Mapping[str, Any], config: OpenAIConfig, secrets: Secrets) -> dict[str, Any]:
    """Returns the used parts of a chat completion, JSON-able: what a cassette records. Raises ReportedError or UnreadableError.

    Args:
        body: the request, from whose text missing token counts are estimated.

    Returns:
        ``text`` (at most `config.reply_chars` characters; a longer one has the finish reason "length"), ``finish_reason``, ``model``,
        the counts of `count_tokens`, and ``thought`` and ``refusal`` if there are any.
    """
    try:
        data = json.loads(content)
        _raise_reported(data, content)
        choice = data["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        if not isinstance(message.get("content"), str | list | dict | None):
            raise TypeError
        parts = _parts(message)
        calls_tool = bool(message.get("tool_calls") or message.get("function_call"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        html = " (a web page: is partner.openai.base_url right?)" if content.lstrip()[:1] == "<" else ""
        begin = one_line(secrets.redact(content), 60)
        raise UnreadableError(f"the answer is not a chat completion: {begin!r}{html}") from None
    texts = {
        kind: secrets.redact(whole_characters("".join(text for of, text in parts if of == kind)), SHORTEST_IN_REPLY)
        for kind in ("text", "thought", "refusal")
    }
    text = texts.pop("text")
    reason = str(choice.get("finish_reason"))
    reason = "tool_calls" if calls_tool and not text.strip() else _FINISH.get(reason.lower(), reason)
    return {
        **cut(text, one_line(secrets.redact(reason), 40), config),
        "model": one_line(secrets.redact(str(data.get("model"))), 120),
        **count_tokens(data.get("usage"), body, text + texts["thought"]),
        **{kind: one_line(other, config.reply_chars) for kind, other in texts.items() if other.strip()},
    }


def _raise_reported(data: Any, content: str) -> None:
    """Raises ReportedError if the response reports an error, whatever else it holds."""
    data = data[0] if isinstance(data, list) and data else data
    choice = next(iter(data.get("choices") or ()), None)
    error = data.get("error") or (choice or {}).get("error")
    ended = _FINISH.get(str((choice or {}).get("finish_reason")).lower()) == "error"
    if error or ended or (choice is None and any(data.get(name) for name in ("message", "detail"))):
        raise ReportedError(content, billed=choice is not None)


def _parts(content: Any, kind: str = "text") -> list[tuple[str, str]]:
    """Returns the texts in a message's content, of any shape, as pairs (text, thought or refusal; text)."""
    if isinstance(content, str):
        return [(kind, content)]
    if isinstance(content, list):
        return [found for part in content for found in _parts(part, kind)]
    if not isinstance(content, dict):
        return []
    if any(word in str(content.get("type")) for word in ("think", "reason")):
        kind = "thought"
    thoughts = next((content[name] for name in _THOUGHTS if content.get(name)), None)
    texts = _parts([content.get("content"), content.get("text")], kind)
    return [*_parts(thoughts, "thought"), *texts, *_parts(content.get("refusal"), "refusal")]


def cut(text: str, finish_reason: str, config: OpenAIConfig) -> dict[str, str]:
    """Returns ``text`` and ``finish_reason`` of a reply that may be too long."""
    too_long = len(text) > config.reply_chars
    return {"text": text[: config.reply_chars], "finish_reason": "length" if too_long else finish_reason}


def count_tokens(usage: Any, body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Returns the tokens of a request and its answer from a usage field, which may hold anything.

    Returns:
        ``input_tokens``, ``cached_tokens``, ``output_tokens``, ``estimated`` (True if any count was missing or impossible), and
        ``prompt_read`` if the endpoint counted so few input tokens that it must have cut the prompt.
    """
    counts = usage if isinstance(usage, Mapping) else {}
    details = counts.get("prompt_tokens_details")
    cached = _count((details.get("cached_tokens") if isinstance(details, Mapping) else None) or 0, 0)
    read, written = _count(counts.get("prompt_tokens"), 1), _count(counts.get("completion_tokens"), 0)
    sent = sum(_bytes(message["content"]) for message in body["messages"])
    whole = (read or 0) + (cached or 0)  # some servers leave the cached tokens out of the prompt's
    is_cut = read is not None and cached is not None and whole * BYTES_PER_TOKEN < sent
    possible = read is not None and cached is not None and cached <= read
    return {
        "input_tokens": guess_input(body) if read is None else read,
        "cached_tokens": (cached or 0) if possible else 0,
        "output_tokens": -(-_bytes(text) // CHARS_PER_TOKEN) + 1 if written is None else written,
        "estimated": written is None or not possible,
        **({"prompt_read": whole} if is_cut else {}),
    }


def _count(count: Any, least: int) -> int | None:
    is_number = isinstance(count, int | float) and not isinstance(count, bool)
    return int(count) if is_number and least <= count <= MOST_TOKENS else None


def guess_input(body: Mapping[str, Any]) -> int:
    """Returns the tokens of a request, estimated from its text."""
    return sum(-(-_bytes(message["content"]) // CHARS_PER_TOKEN) + MESSAGE_TOKENS for message in body["messages"])


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
