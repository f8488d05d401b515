"""Table of what may come back from an endpoint instead of an answer, and what is done about it.

    wait   busy      it asks for patience: asked again for as long as a turn may take
           down      it does not answer: asked again `max_retries` times; failures in a row are an outage
           wrong     the same, but it did answer, and perhaps this request alone is the reason
    learn  parameter the model does not take it: asked again without it, or under its other name
    stop   refused   only a person can change it, such as an unknown model
           account   the same, and it concerns every request: key and money
    fail   request   this game's request alone is at fault
           own       this program is

An answer, which is played, is read by `answers`. The same table is for an error within a response of status 200.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from slim_rl.config import OpenAIConfig
from slim_rl.partners.answers import ReportedError, UnreadableError
from slim_rl.partners.dialect import LEARNED, RENAMED
from slim_rl.partners.quoting import one_line
from slim_rl.partners.secrets import Secrets

LONGEST_PAUSE = 30 * 86400.0  # seconds; a longer one is not believed

Kind = Literal["busy", "down", "wrong", "parameter", "refused", "account", "request", "own"]


class Row(NamedTuple):
    """Line of the table; the first that fits decides. `status` may also be the code within a response of status 200, or 0 if it has none."""

    kind: (
        Kind | Literal["unknown"]
    )  # unknown: a request's own fault once the endpoint has answered any, and else a refusal
    status: Container[int]
    words: str = ""  # pattern in what the endpoint reports
    hint: str = ""  # what to look at, for the person who reads the sentence


ANY = range(1000)
TABLE = (
    Row("account", {402}, hint="the account has no money left"),
    Row(
        "account",
        ANY,
        r"insufficient[_ ](quota|balance|credits?|funds)|exceeded_current_quota|billing_(hard_limit|not_active)|"
        r"requires more credits|credit balance is too low|out of credits",
        "the account has no money left",
    ),
    Row("account", {401}, hint="is the key in ${key} right?"),
    Row(
        "account",
        ANY,
        r"(invalid|incorrect|expired|missing|no)[_ ]api[_ ]?key|api[_ ]?key (is |was )?(not valid|not found|invalid|expired)",
        "is the key in ${key} right?",
    ),
    Row("busy", {429}),
    Row("busy", ANY, r"rate[_ -]?limit|too[_ ]many[_ ]requests|tokens per (minute|day|hour)|\(TPM\)"),
    Row(
        "request",
        {0, 400, 403, 413, 422, 451, 500},
        r"context[_ ](length|window|size)|maximum context|too many (input )?tokens|(prompt|input) is too (long|large)|"
        r"content[_ ](filter|policy|management)|ResponsibleAI|data_inspection|moderation|flagged|\bsafety\b",
    ),
    Row("request", {413, 451}),
    Row("parameter", {0, 400, 404, 422, 501}),  # where `refused_parameters` finds one
    Row(
        "refused",
        {0, 400, 422},
        r"model[_ ]not[_ ](found|exist)|(invalid|unknown|unsupported) model|not a valid model|"
        r"model\b.{0,100}\b(not (found|exist|available|supported)|decommissioned|deprecated)|\"param\": ?\"model",
        "is the model {model} right, and may this key use it?",
    ),
    Row("refused", {403, 404}, hint="is the model {model} right, and may this key use it?"),
    Row("refused", range(300, 400), hint="it answers from another address: is partner.openai.base_url right?"),
    Row("refused", {405, 410}, hint="is partner.openai.base_url right?"),
    Row("wrong", {0, 409, 500, 501, 505}),
    Row("down", {408, 425, *range(500, 600)}),
    Row("unknown", ANY, hint="does the endpoint know every parameter of the request?"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Request that was not answered.

    Attributes:
        why: one sentence's worth, without secrets.
        retry_after: seconds that the endpoint asks to wait; None if it does not say.
        billed: whether the endpoint did its work, so that the request has a price.
        parameters: those of the request that the model does not take, if that is why.
    """

    why: str
    kind: Kind
    retry_after: float | None = None
    billed: bool = False
    parameters: tuple[str, ...] = ()


class TooLargeError(Exception):
    """Response longer than is read."""


def fault_of(
    error: Exception, body: Mapping[str, Any], config: OpenAIConfig, secrets: Secrets, ever_answered: bool
) -> Fault:
    """Returns what an exception of a request means.

    Args:
        body: the request as it was sent.
        ever_answered: whether the endpoint has worked before, with this very configuration.
    """
    import openai

    response: tuple[int, str, Mapping[str, str]]
    if isinstance(error, ReportedError):
        response, billed = (error.status, error.content, {}), error.billed
    elif isinstance(error, openai.APIStatusError):
        response, billed = (error.status_code, error.response.text, error.response.headers), False
    else:
        return _without_response(error, secrets)
    status, content, headers = response
    reported = error_in(content)
    code = str(reported.get("code") or "")
    parameters, key = refused_parameters(reported, body)
    row = next(row for row in TABLE if _fits(row, status, content, bool(parameters)))
    kind = "unknown" if row.kind == "parameter" and key else row.kind
    if kind == "unknown":
        kind = "request" if ever_answered else "refused"
    hint = key if row.kind == "parameter" else row.hint.format(key=config.api_key_env, model=config.model)
    hint = f" ({hint})" if hint and kind != "request" else ""
    name = f" {one_line(secrets.redact(code), 60)}" if code not in ("", str(status)) else ""
    why = f"HTTP {status or 200}{name}: {one_line(secrets.redact(reported['message']))}{hint}"
    return Fault(why, kind, retry_after(headers), billed, parameters)


def _without_response(error: Exception, secrets: Secrets) -> Fault:
    causes = list(_causes(error))
    why = one_line(secrets.redact(f"{type(causes[-1]).__name__}: {causes[-1]}"))

    def is_any(*kinds: type[Exception]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if is_any(UnreadableError, TooLargeError):
        return Fault(str(error if isinstance(error, UnreadableError) else causes[-1]), "wrong", billed=True)
    if is_any(socket.gaierror):
        return Fault(f"its address is not known ({why}); is partner.openai.base_url right?", "refused")
    if is_any(ssl.SSLError):
        return Fault(f"no secure connection ({why}); is partner.openai.base_url right?", "refused")
    modules = {made.__module__.partition(".")[0] for cause in causes for made in type(cause).__mro__}
    if is_any(OSError, EOFError) or modules & {"aiohttp", "httpx", "httpx2", "httpcore", "h11", "anyio"}:
        return Fault(f"the connection failed: {why}", "down")
    return Fault(f"an error in this program itself: {why}", "own")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes, down to the first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _fits(row: Row, status: int, content: str, names_parameters: bool) -> bool:
    fits = status in row.status and re.search(row.words, content[:20_000], re.IGNORECASE | re.DOTALL) is not None
    return fits and (row.kind != "parameter" or names_parameters)


def error_in(content: str) -> dict[str, Any]:
    """Returns the error that a response's body reports, in OpenAI's form; its `message` is all of the body if it has no other."""
    data: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(content)
    data = data[0] if isinstance(data, list) and data else data
    if not isinstance(data, dict):
        return {"message": content.strip() or "no reason is given"}
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    inner = data.get("error") or (choice.get("error") if isinstance(choice, dict) else None) or data
    error = inner if isinstance(inner, dict) else {"message": inner}
    texts = (error.get("message"), data.get("detail"), data.get("message"))
    message = next((text for text in texts if isinstance(text, str) and text), content.strip())
    return {**error, "message": message, "detail": data.get("detail")}


# --- which parameter of the request it was: what refuses one, what refuses its value, and what begins a list of others

_REFUSES = re.compile(
    r"unsupport|n[o']t support|unknown|unrecogni[sz]ed|unexpected|not (permitted|allowed|accepted|recogni[sz]ed)|"
    r"extra[_ ](inputs|fields|forbidden)|cannot find field|not a valid (field|parameter)|additional propert",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(should|must) be|(less|greater) than|at (most|least)|out of range|between|too (large|high|small|low)|invalid value",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"(?<!not )\b(supported|allowed|valid|accepted|known) (\w+ )?(parameters|arguments|fields|keys|values)\b|\b(expected|use|drop)\b",
    re.IGNORECASE,
)


def refused_parameters(error: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Returns the request's parameters that an error names, and a hint at the key to set if not all of them can be learned."""
    sendable = [name for name in body if name not in ("model", "messages")]
    text, param, detail = error["message"][:20_000], error.get("param"), error.get("detail")
    places = [place for place in detail if isinstance(place, dict)] if isinstance(detail, list) else []
    if isinstance(param, str) and param in sendable:
        names = [param]
        text = f"{text} {error.get('code')}"
    elif places:
        text = " ".join(f"{place.get('msg')} {place.get('type')}" for place in places)
        steps = [step for place in places if isinstance(place.get("loc"), list) for step in place["loc"]]
        names = [name for name in sendable if name in steps]
    else:
        sentences = [
            part for part in re.split(r"(?<=[.!;])\s+|\n", text) if _REFUSES.search(part) or _VALUE.search(part)
        ]
        text = " ".join(sentences)
        words = " ".join(_OTHERS.split(sentence, maxsplit=1)[0] for sentence in sentences)
        names = [name for name in sendable if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    refuses = bool(_REFUSES.search(text))
    if not names or not (refuses or places or _VALUE.search(text)):
        return (), ""
    if refuses and all(name in LEARNED for name in names):
        return tuple(names), ""
    key = next((name for name, other in RENAMED.items() if other == names[0]), names[0])
    if key in OpenAIConfig.model_fields:
        return tuple(names), f"set partner.openai.{key} to a value that it takes, or to null"
    return tuple(names), f"remove {key} from partner.openai.extra"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns seconds, from Retry-After-Ms or Retry-After (a number or a date, RFC 9110); None if absent or unreadable."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value, seconds = headers.get(name), math.nan
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            seconds = float(value) / unit
        if math.isnan(seconds):
            with contextlib.suppress(TypeError, ValueError, OverflowError, OSError, IndexError):
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        if math.isfinite(seconds):
            return min(max(0.0, seconds), LONGEST_PAUSE)
    return None
