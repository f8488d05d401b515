"""Table of what may come back from an endpoint instead of an answer, and what is done about it.

    wait   busy      it asks to wait: asked again until the turn's time is over
           down      it does not answer: asked again `max_retries` times; failures in a row are an outage
           wrong     the same, but it did answer, and perhaps this request alone is the reason
    learn  parameter the model refuses it: asked again without it, or under its other name
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from slim_rl.config import OpenAIConfig
from slim_rl.partners.answers import ReportedError, UnreadableError
from slim_rl.partners.dialect import refused_parameters
from slim_rl.partners.quoting import one_line
from slim_rl.partners.secrets import Secrets

LONGEST_PAUSE = 30 * 86400.0  # seconds; a longer one is shortened to this

Kind = Literal["busy", "down", "wrong", "parameter", "refused", "account", "request", "own"]


class Row(NamedTuple):
    """Line of the table; the first that fits decides.

    Attributes:
        kind: what is done; unknown: "request" once the endpoint has answered any request, before that "refused".
        pattern: regular expression in "STATUS BODY"; the status may be the code within a response of status 200, 0 without one.
        hint: what a person should check.
    """

    kind: Kind | Literal["unknown"]
    pattern: str
    hint: str = ""


TABLE = (
    Row(
        "account",
        r"^402|insufficient[_ ](quota|balance|credits?|funds)|exceeded_current_quota|billing_(hard_limit|not_active)|"
        r"requires more credits|credit balance is too low|out of credits",
        "the account has no money left",
    ),
    Row(
        "account",
        r"^401|(invalid|incorrect|expired|missing|no)[_ ]api[_ ]?key|"
        r"api[_ ]?key (is |was )?(not valid|not found|invalid|expired)",
        "is the key in ${key} right?",
    ),
    Row("busy", r"^429|rate[_ -]?limit|too[_ ]many[_ ]requests|tokens per (minute|day|hour)|\(TPM\)"),
    Row(
        "request",
        r"^(413|451)|^(0|400|403|422|500) .*("
        r"context[_ ](length|window|size)|maximum context|too many (input )?tokens|(prompt|input) is too (long|large)|"
        r"content[_ ](filter|policy|management)|ResponsibleAI|data_inspection|moderation|flagged|\bsafety\b)",
    ),
    Row("parameter", r"^(0|400|404|422|501) "),  # if `refused_parameters` finds one
    Row(
        "refused",
        r"^40[34]|^(0|400|422) .*(model[_ ]not[_ ](found|exist)|(invalid|unknown|unsupported) model|not a valid model|"
        r"model\b.{0,100}\b(not (found|exist|available|supported)|decommissioned|deprecated)|\"param\": ?\"model)",
        "is the model {model} right, and may this key use it?",
    ),
    Row("refused", r"^3", "it answers from another address: is partner.openai.base_url right?"),
    Row("refused", r"^(405|410)", "is partner.openai.base_url right?"),
    Row("wrong", r"^(0|409|500|501|505) "),
    Row("down", r"^(408|425|5)"),
    Row("unknown", "", "does the endpoint know every parameter of the request?"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Request that was not answered.

    Attributes:
        why: one clause, without secrets.
        retry_after: seconds that the endpoint asks to wait; None if it does not ask.
        billed: True if the endpoint did its work, so that the request has a price.
        parameters: the request's parameters that the model refuses, if that is why.
    """

    why: str
    kind: Kind
    retry_after: float | None = None
    billed: bool = False
    parameters: tuple[str, ...] = ()


class TooLargeError(Exception):
    """Response longer than `response_bytes`."""


def fault_of(
    error: Exception, body: Mapping[str, Any], config: OpenAIConfig, secrets: Secrets, ever_answered: bool
) -> Fault:
    """Returns what an exception of a request means.

    Args:
        body: the request as it was sent.
        ever_answered: True if the endpoint has worked before with this configuration.
    """
    import openai

    headers: Mapping[str, str] = {}
    if isinstance(error, ReportedError):
        status, content, billed = 0, error.content, error.billed
    elif isinstance(error, openai.APIStatusError):
        status, content, headers, billed = error.status_code, error.response.text, error.response.headers, False
    else:
        return _without_response(error, secrets)
    reported = error_in(content)
    code = str(reported["code"] or "")
    if status == 0 and code.isdecimal() and 300 <= int(code[:4]) < 600:
        status = int(code)
    parameters, key = refused_parameters(reported, body)
    text, flags = f"{status} {content[:20_000]}", re.IGNORECASE | re.DOTALL
    fits = (row for row in TABLE if re.search(row.pattern, text, flags))
    row = next(row for row in fits if row.kind != "parameter" or parameters)
    kind = "unknown" if row.kind == "parameter" and key else row.kind
    if kind == "unknown":
        kind = "request" if ever_answered else "refused"
    hint = key if row.kind == "parameter" else row.hint.format(key=config.api_key_env, model=config.model)
    hint = f" ({hint})" if hint and kind != "request" else ""
    name = f" {one_line(secrets.redact(code), 60)}" if code not in ("", str(status)) else ""
    why = f"HTTP {status or 200}{name}: {one_line(secrets.redact(reported['message']))}{hint}"
    return Fault(why, kind, retry_after(headers), billed, parameters)


def _without_response(error: Exception, secrets: Secrets) -> Fault:
    """Returns what an exception means that no response caused."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    why = one_line(secrets.redact(f"{type(causes[-1]).__name__}: {causes[-1]}"))

    def is_any(*kinds: type[Exception]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if is_any(UnreadableError, TooLargeError):
        return Fault(str(error if isinstance(error, UnreadableError) else causes[-1]), "wrong", billed=True)
    if is_any(socket.gaierror):
        return Fault(f"its address is not known ({why}); is partner.openai.base_url right?", "refused")
    if is_any(ssl.SSLError):
        return Fault(f"no secure connection ({why}); is partner.openai.base_url right?", "refused")
    modules = {base.__module__.partition(".")[0] for cause in causes for base in type(cause).__mro__}
    if is_any(OSError, EOFError) or modules & {"aiohttp", "httpx", "httpx2", "httpcore", "h11", "anyio"}:
        return Fault(f"the connection failed: {why}", "down")
    return Fault(f"an error in this program itself: {why}", "own")


def error_in(content: str) -> dict[str, Any]:
    """Returns the error that a response's body reports, in OpenAI's form; without a message, `message` is the whole body."""
    data: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(content)
    data = data[0] if isinstance(data, list) and data else data
    if not isinstance(data, dict):
        return {"code": None, "message": content.strip() or "no reason is given"}
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    inner = data.get("error") or (choice.get("error") if isinstance(choice, dict) else None) or data
    error = inner if isinstance(inner, dict) else {"message": inner}
    texts = (error.get("message"), data.get("detail"), data.get("message"))
    message = next((text for text in texts if isinstance(text, str) and text), content.strip())
    return {"code": data.get("code"), **error, "message": message, "detail": data.get("detail")}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of Retry-After-Ms or Retry-After (a number or a date, RFC 9110); None if absent or unreadable."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with contextlib.suppress(TypeError, ValueError, OverflowError, OSError, IndexError):
            try:
                seconds = float(value) / unit
            except ValueError:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            if math.isfinite(seconds):
                return min(max(0.0, seconds), LONGEST_PAUSE)
    return None
