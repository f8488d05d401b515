"""Reads the needed parts of a chat completion from untrusted bytes.

no text is longer than asked for, none holds a secret or half a character
token counts lie between what the texts make possible; where the endpoint's counts do not, they are estimated
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
MESSAGE_TOKENS = 4  # what a message takes in addition to its text
TEMPLATE_TOKENS = 4000  # what a server may put before the messages unseen
FREE_OUTPUT = 100_000  # believable output tokens, thoughts included, where the request sets no limit


class UnreadableError(ValueError):
    """An answer that is not a chat completion."""


def read_answer(content: str, body: Mapping[str, Any], config: OpenAIConfig, secrets: Secrets) -> dict[str, Any]:
    """The parts of a chat completion that are used, JSON-able: what a cassette keeps.

    Args:
        body: the request, whose size bounds the tokens.

    Returns:
        ``text`` (at most `config.reply_chars` characters; a longer one has the finish reason "length"), ``finish_reason``,
        ``model``, ``input_tokens``, ``cached_tokens``, ``output_tokens``, and ``estimated``: whether a count is not the endpoint's.

    Raises:
        UnreadableError: it is something else.
    """
    try:
        data = json.loads(content)
        choice = data["choices"][0]
        text = choice["message"].get("content")
        if isinstance(text, list):  # of parts, of which some may be no text
            text = "".join(part["text"] for part in text if part.get("type") == "text")
        reason, model, usage = choice.get("finish_reason"), data.get("model"), data.get("usage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        text, data = 0, None
    if data is None or not (text is None or isinstance(text, str)):
        raise UnreadableError(f"the answer is not a chat completion: {one_line(secrets.redact(content), 60)!r}")
    said = secrets.redact(whole_characters(text or ""), SHORTEST_SAID)
    return {
        **cut(said, one_line(secrets.redact(str(reason)), 40), config),
        "model": one_line(secrets.redact(str(model)), 120),
        **count_tokens(usage, body, said),
    }


def cut(text: str, finish_reason: str, config: OpenAIConfig) -> dict[str, str]:
    """``text`` and ``finish_reason`` of a reply that may be too long."""
    too_long = len(text) > config.reply_chars
    return {"text": text[: config.reply_chars], "finish_reason": "length" if too_long else finish_reason}


def count_tokens(usage: Any, body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """``input_tokens``, ``cached_tokens``, ``output_tokens`` and ``estimated`` from an answer's usage field, which may hold anything.

    A count that is missing, or smaller than the text makes possible, is estimated; one that is larger counts as the largest that
    is possible (`most_tokens`), however long the text. Cached tokens that cannot be are none.
    """
    counts = usage if isinstance(usage, Mapping) else {}
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    most_read, most_written = most_tokens(body)
    written = _bytes(text)
    read, doubted_read = _plausible(
        counts.get("prompt_tokens"), _sent(body) // LONGEST_TOKEN + 1, most_read, guess_input(body)
    )
    output, doubted_output = _plausible(
        counts.get("completion_tokens"),
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


def most_tokens(body: Mapping[str, Any]) -> tuple[int, int]:
    """The most input and output tokens that a request is ever counted as."""
    limits = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
    output = max((most for most in limits if isinstance(most, int)), default=FREE_OUTPUT)
    return _sent(body) + 100 * len(body["messages"]) + TEMPLATE_TOKENS, output


def guess_input(body: Mapping[str, Any]) -> int:
    """Tokens of a request, from its text."""
    messages = body["messages"]
    return sum(-(-_bytes(message["content"]) // CHARS_PER_TOKEN) + MESSAGE_TOKENS for message in messages)


def _plausible(count: Any, least: int, most: int, guess: int) -> tuple[int, bool]:
    """A count between two bounds, and whether it is not the one that was told."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not count >= least:
        return guess, True
    return (most, True) if count > most else (int(count), False)


def _sent(body: Mapping[str, Any]) -> int:
    """Bytes of a request's texts."""
    return sum(_bytes(message["content"]) for message in body["messages"])


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
