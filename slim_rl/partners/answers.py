"""Answers and faults of an endpoint, read from untrusted bytes.

Invariants:
    Half a reply that ended in an error is never played.
    No text holds a secret or half a character, and a text longer than `REPLY_CHARS` is cut.
    A token count that is missing or impossible is estimated from the text.

What is done about a fault (`Fault.kind`), which answers.yaml knows by its status and words:

    wait   busy      it asks to wait: asked again until the turn's time is over
           down      it does not answer: asked again `max_retries` times; failures in a row are an outage
           wrong     the same, but it did answer, and perhaps this request alone is the reason
    learn  parameter the model refuses it: asked again without it, or in its other form
    cut    length    the model used all its tokens before it wrote: read as a reply that was cut
    stop   refused   only a person can change it, such as an unknown model
           account   the same, and it concerns every request: key and money
    fail   request   this game's request alone is at fault
           own       this program is
"""

import contextlib
import email.utils
import functools
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import aiohttp

from slim_rl.config import OpenAIConfig, read_yaml
from slim_rl.http import Response
from slim_rl.jsonl import whole_characters
from slim_rl.partners.quoting import Secrets, one_line

REPLY_CHARS = 8000  # a longer reply counts as cut off, and the model is asked again
CHARS_PER_TOKEN = 4  # roughly, in English text
BYTES_PER_TOKEN = 10  # a prompt counted at more bytes per token was cut
MESSAGE_TOKENS = 4  # tokens of a message in addition to its text
MOST_TOKENS = 10_000_000  # a larger count is impossible
SHORTEST_SECRET = 8  # characters of a secret that is removed from a reply, whose words must not be changed
SYSTEM = "system role"  # a parameter of the request like any other, once a model refuses it
LONGEST_PAUSE = 30 * 86400.0  # seconds; a longer one is shortened to this

Kind = Literal["busy", "down", "wrong", "parameter", "length", "refused", "account", "request", "own"]


class Row(NamedTuple):
    """Row of the faults in answers.yaml."""

    kind: Kind | Literal["unknown"]
    status: str = ".*"
    says: str = ""
    hint: str = ""


_TABLES: dict[str, Any] = read_yaml(Path(__file__).with_name("answers.yaml"))
FAULTS = [Row(**row) for row in _TABLES["faults"]]
LEARNED: dict[str, str] = _TABLES["learned"]
RENAMED = {"max_tokens": "max_completion_tokens"}
_FINISH = {name: standard for standard, names in _TABLES["finish"].items() for name in names}
_ROLES = re.compile(
    r"\b(system|developer)\b.{0,40}\b(role|message|prompt|instruction)|\broles?\b.{0,120}\b(system|alternate)\b|\bgot system\b|"
    r"\bfirst message\b",
    re.IGNORECASE,
)
_LONG_AGO = 1e9  # seconds since 1970 of a time in 2001: no pause is that long
PAUSE_HEADERS = re.compile("retry-after|ratelimit", re.IGNORECASE)
# "try again in 7m12s", "in 7:12 you can ask again", "resets at 2026-11-28T23:00Z", "retryDelay": "34s", "retry_after_ms": 1500,
# "RateLimit: r=0;t=34"; a number without a unit only as a value of JSON or of such a header
_UNITS = r"\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|millis\w*|sec\w*|min\w*|hours?|days?)(?![a-z])"
_LENGTH = rf"(?:{_UNITS}[\s,and]*)+"
_PAUSE = re.compile(
    r"(?:retry|again|wait|reset|back|available in|cooldown|estimated_time|;\s*t\b)(?P<key>[\w\s\"':={-]{0,30}?)(?:"
    r"(?P<date>\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z| (?:UTC|GMT)|[+-]\d\d:\d\d))|"
    rf"(?P<time>{_LENGTH})|[:=]\s*[\"']?(?P<number>\d+(?:\.\d+)?)(?=\s*[\"',}}]))|"
    rf"\bin\s+(?:(?P<soon>{_LENGTH})|(?P<clock>\d+(?::\d\d)+)\b)",
    re.IGNORECASE,
)
# Beginning of a unit -> its seconds; the first that fits counts
_SECONDS = {"ms": 0.001, "milli": 0.001, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # names of thoughts in a message or a part of its content


class TooLargeError(Exception):
    """Response longer than is read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Request that was not answered.

    Attributes:
        why: one clause, without secrets.
        retry_after: seconds that the endpoint asks to wait; None if it does not ask.
        timed_out: True if we stopped waiting.
        billed: True if the endpoint did its work, so that the request has a price.
        parameter: the request's parameter that the model refuses, if that is why.
    """

    why: str
    kind: Kind
    retry_after: float | None = None
    billed: bool = False
    timed_out: bool = False
    parameter: str = ""


class AnswerReader:
    """Reader of one endpoint's responses."""

    def __init__(self, config: OpenAIConfig, secrets: Secrets) -> None:
        self.config, self.secrets = config, secrets
        self._is_url_right = f"is {config.player}.openai.base_url right?"

    def read(self, response: Response, body: Mapping[str, Any], ever_answered: bool) -> dict[str, Any] | Fault:
        """Returns the used parts of a chat completion, JSON-able (what a cassette records), or the fault that came instead.

        Args:
            body: the request as it was sent, from whose text missing token counts are estimated.
            ever_answered: True if the endpoint has worked before with this configuration.

        Returns:
            ``text`` (at most `REPLY_CHARS` characters; a longer one has the finish reason "length"), ``finish_reason``,
            ``model``, the counts of `count_tokens`, and ``thought`` and ``refusal`` if there are any.
        """
        content = response.content.decode("utf-8-sig", "replace")
        data: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(re.sub(r"^\s*(:.*\s+)*", "", content))  # some servers begin with keep-alive comments
        data = data[0] if isinstance(data, list) and data else data
        choices = data.get("choices") if isinstance(data, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if response.status >= 300:
            error = error_in(data, choice, content)
            fault = self._fault(response.status, content, error, response.headers, body, ever_answered)
            spent = {"text": "", "finish_reason": "length", "model": self.config.model, **count_tokens(None, body, "")}
            return spent if fault.kind == "length" else fault
        if isinstance(data, dict) and _reports_error(data, choice):
            if choice is not None:  # the reply's own words are no fault
                content = str(data.get("error") or choice.get("error") or choice.get("finish_reason"))
            fault = self._fault(0, content, error_in(data, choice, content), {}, body, ever_answered)
            return replace(fault, billed=choice is not None)
        parts = _parts_of(choice)
        if choice is None or parts is None:
            hint = f" ({self._is_url_right})" if choices is None else ""
            begin = one_line(self.secrets.redact(content), 60)
            return Fault(f"the answer is not a chat completion: {begin!r}{hint}", "wrong", billed=True)
        texts = {kind: self._joined(parts, kind) for kind in ("text", "thought", "refusal")}
        text, reason, message = texts.pop("text"), str(choice.get("finish_reason")), choice.get("message") or {}
        calls_tool = bool(message.get("tool_calls") or message.get("function_call"))
        reason = "tool_calls" if calls_tool and not text.strip() else _FINISH.get(reason.lower(), reason)
        return {
            **cut(text, one_line(self.secrets.redact(reason), 40)),
            "model": one_line(self.secrets.redact(str(data.get("model"))), 120),
            **count_tokens(data.get("usage"), body, text + texts["thought"]),
            **{kind: one_line(other, REPLY_CHARS) for kind, other in texts.items() if other.strip()},
        }

    def not_answered(self, error: Exception) -> Fault:
        """Returns what an exception means that came instead of a response."""
        if isinstance(error, TooLargeError):
            return Fault(str(error), "wrong", billed=True)
        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
            causes.append(cause)
        why = one_line(self.secrets.redact(f"{type(causes[-1]).__name__}: {causes[-1]}"))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return Fault(f"its address is not known ({why}); {self._is_url_right}", "refused")
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            return Fault(f"no secure connection ({why}); {self._is_url_right}", "refused")
        if any(isinstance(cause, aiohttp.ClientError | OSError | EOFError) for cause in causes):
            return Fault(f"the connection failed: {why}", "down")
        return Fault(f"an error in this program itself: {why}", "own")

    def _joined(self, parts: list[tuple[str, str]], kind: str) -> str:
        return self.secrets.redact(whole_characters("".join(text for of, text in parts if of == kind)), SHORTEST_SECRET)

    def _fault(
        self,
        status: int,
        content: str,
        reported: Mapping[str, Any],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        ever_answered: bool,
    ) -> Fault:
        """Returns what the table says of an error; `status` is 0 for one within a response of status 200."""
        code = str(reported["code"] or "")
        if status == 0 and code.isdecimal() and 300 <= int(code[:4]) < 600:
            status = int(code)
        # An error of status 500 may hold anything else, such as the request.
        parameter = named_parameter(reported, reported["message"] if status == 500 else content[:20_000], body)
        learned = parameter in LEARNED and (parameter in body or parameter == SYSTEM)
        text, flags = content[:20_000], re.IGNORECASE | re.DOTALL
        fits = (row for row in FAULTS if re.fullmatch(row.status, str(status)) and re.search(row.says, text, flags))
        row = next(row for row in fits if row.kind != "parameter" or (learned if status == 500 else parameter))
        kind = "unknown" if row.kind == "parameter" and not learned else row.kind
        if kind == "unknown":
            kind = "request" if ever_answered else "refused"
        hint = row.hint.format(key=self.config.api_key_env, model=self.config.model, player=self.config.player)
        hint = _setting(parameter, f"{self.config.player}.openai") if row.kind == "parameter" and not learned else hint
        hint = f" ({hint})" if hint and kind != "request" else ""
        name = f" {one_line(self.secrets.redact(code), 60)}" if code not in ("", str(status)) else ""
        why = f"HTTP {status or 200}{name}: {one_line(self.secrets.redact(reported['message']))}{hint}"
        return Fault(why, kind, retry_after(headers, content, kind == "busy"), parameter=parameter)


def _reports_error(data: Mapping[str, Any], choice: Mapping[str, Any] | None) -> bool:
    """Returns True if a response of status 200 reports an error, whatever else it holds."""
    if data.get("error") or (choice or {}).get("error"):
        return True
    ended = _FINISH.get(str((choice or {}).get("finish_reason")).lower())
    return ended == "error" or (choice is None and any(data.get(name) for name in ("message", "detail")))


def error_in(data: Any, choice: Mapping[str, Any] | None, content: str) -> dict[str, Any]:
    """Returns the error that a body reports, in OpenAI's form; without a message, `message` is the whole body."""
    if not isinstance(data, dict):
        return {"code": None, "message": content.strip() or "no reason is given"}
    inner = data.get("error") or (choice or {}).get("error") or data
    error = inner if isinstance(inner, dict) else {"message": inner}
    texts = (error.get("message"), data.get("detail"), data.get("message"))
    message = next((text for text in texts if isinstance(text, str) and text), content.strip())
    return {"code": data.get("code"), **error, "message": message}


def named_parameter(error: Mapping[str, Any], content: str, body: Mapping[str, Any]) -> str:
    """Returns the parameter that an error names, the first of several; `SYSTEM` for that role, "" for none.

    If it names none that was sent, it may name one that was learned: its value suits the endpoint in no form.
    """
    sent = [name for name in body if name not in ("model", "messages")]
    if (param := error.get("param")) in sent:
        return str(param)
    forms = {name: re.escape(name).replace("_", "[_ ]?") for name in (*sent, *LEARNED)}  # also topP, Top P
    places = {name: re.search(rf"(?<!\w){form}(?!\w)", content, re.IGNORECASE) for name, form in forms.items()}
    places[SYSTEM] = _ROLES.search(content) if body["messages"][0]["role"] == "system" else None
    found = [(name not in sent and name != SYSTEM, match.start(), name) for name, match in places.items() if match]
    return min(found)[2] if found else ""


def _setting(parameter: str, section: str) -> str:
    """Returns what a person should do about a refused parameter."""
    key = next((name for name, other in RENAMED.items() if other == parameter), parameter)
    if key in OpenAIConfig.model_fields:
        return f"set {section}.{key} to a value that it takes, or to null"
    return f"remove {key} from {section}.extra"


def retry_after(headers: Mapping[str, str], content: str = "", limited: bool = True) -> float | None:
    """Returns the seconds to wait that a response asks for, None if none or unreadable.

    They are in Retry-After-Ms or Retry-After (a number or a date, RFC 9110), else in the body ("try again in 7m12s"), else in a header
    on when a rate limit is reset. A number too large for a pause is a point in time, in seconds or milliseconds.

    Args:
        limited: whether a limit was met. Otherwise body and reset are not read: many answers have the one, and say other times in the other.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with contextlib.suppress(TypeError, ValueError, OverflowError, OSError, IndexError):
            try:
                seconds = float(value) / unit
            except ValueError:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            if math.isfinite(seconds):
                return _pause(seconds)
    resets = "".join(f"\n{name}: {value}," for name, value in headers.items())
    if not limited or (asked := _PAUSE.search(content[:20_000] + resets)) is None:
        return None
    if asked["date"]:
        with contextlib.suppress(ValueError):
            return _pause(datetime.fromisoformat(re.sub(" [A-Z]+", "Z", asked["date"])).timestamp() - time.time())
        return None
    if asked["clock"]:
        return _pause(functools.reduce(lambda whole, part: 60.0 * whole + float(part), asked["clock"].split(":"), 0.0))
    number = asked["number"] and asked["number"] + ("ms" if re.search("_?ms|millis", asked["key"], re.I) else "s")
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", (asked["time"] or asked["soon"] or number).lower())
    units = (next(seconds for begin, seconds in _SECONDS.items() if unit.startswith(begin)) for _, unit in parts)
    return _pause(sum(float(amount) * unit for (amount, _), unit in zip(parts, units, strict=True)))


def _pause(seconds: float) -> float:
    """Returns a pause from its length, or from the time of its end, in seconds or milliseconds since 1970."""
    if seconds > _LONG_AGO:
        seconds = (seconds / 1000.0 if seconds > 1000.0 * _LONG_AGO else seconds) - time.time()
    return min(max(0.0, seconds), LONGEST_PAUSE)


def _parts_of(choice: Mapping[str, Any] | None) -> list[tuple[str, str]] | None:
    """Returns the texts of a completion's choice as pairs (text, thought or refusal; text); None if it is another thing."""
    if choice is None or not ("message" in choice or isinstance(choice.get("text"), str)):
        return None
    message = choice["message"] if "message" in choice else {"content": choice["text"]}
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | list | dict | None):
        return None
    with contextlib.suppress(RecursionError):
        return _parts(message)
    return None


def _parts(content: Any, kind: str = "text") -> list[tuple[str, str]]:
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


def cut(text: str, finish_reason: str) -> dict[str, str]:
    """Returns ``text`` and ``finish_reason`` of a reply that may be too long."""
    return {"text": text[:REPLY_CHARS], "finish_reason": "length" if len(text) > REPLY_CHARS else finish_reason}


def count_tokens(usage: Any, body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Returns the tokens of a request and its answer from a usage field, which may hold anything.

    Returns:
        ``input_tokens`` (cached and written ones included), ``cached_tokens``, ``written_tokens`` (to the provider's cache),
        ``output_tokens``, ``estimated`` (True if any count was missing or impossible), and
        ``prompt_read`` if the endpoint counted so few input tokens that it must have cut the prompt.
    """
    counts = usage if isinstance(usage, Mapping) else {}
    details = counts.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    cached, stored = (_count(details.get(name) or 0, 0) for name in ("cached_tokens", "cache_write_tokens"))
    read, written = _count(counts.get("prompt_tokens"), 1), _count(counts.get("completion_tokens"), 0)
    sent = sum(_bytes(message["content"]) for message in body["messages"])
    total = _count(counts.get("total_tokens"), 1)
    if read is not None and written is not None and (unseen := (total or 0) - read - written) not in (0, cached):
        written += max(0, unseen)  # thoughts, which some leave out of the completion's
    whole = (read or 0) + (cached or 0)  # some servers leave the cached tokens out of the prompt's
    is_cut = read is not None and cached is not None and whole * BYTES_PER_TOKEN < sent
    possible = read is not None and cached is not None and cached <= read
    return {
        "input_tokens": guess_input(body) if read is None else read,
        "cached_tokens": (cached or 0) if possible else 0,
        "written_tokens": min(stored or 0, (read or 0) - (cached or 0)) if possible else 0,
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
