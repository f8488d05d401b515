"""What an unanswered request means, from the exception it ended with.

An error of this program's own is never the endpoint's: it ends one game and tells nothing about any other.
"""

from __future__ import annotations

import contextlib
import email.utils
import math
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from slim_rl.config import OpenAIConfig
from slim_rl.partners.answers import UnreadableError
from slim_rl.partners.quoting import one_line
from slim_rl.partners.secrets import Secrets

LONGEST_PAUSE = 30 * 86400.0  # seconds; what asks for more is not believed

Kind = Literal["down", "wrong", "busy", "refused", "account", "request", "own"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that was not answered.

    Attributes:
        why: one sentence's worth, without secrets.
        kind: ``down`` (the endpoint is to blame), ``wrong`` (so it is, but it answered: it may be this request alone), ``busy`` (it
            asks for patience), ``refused`` (it will not work before a person changes something), ``account`` (the same, and surely
            so for all requests: key and money), ``request`` (this request is at fault, and only it) or ``own`` (this program is).
        retry_after: seconds the endpoint asks to wait; None if it does not say.
        billed: whether the endpoint did its work, so that the request has a price.
        parameter: the one of the request's that the model does not take, if that is why.
    """

    why: str
    kind: Kind
    retry_after: float | None = None
    billed: bool = False
    parameter: str | None = None


class TooLargeError(Exception):
    """A response longer than is read."""


def fault_of(error: Exception, config: OpenAIConfig, secrets: Secrets, ever_answered: bool) -> Fault:
    """What an exception of a request means. `ever_answered`: the endpoint has worked before, with this very configuration."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _status_fault(error, config, secrets, ever_answered)
    causes = list(_causes(error))
    why = one_line(secrets.redact(f"{type(causes[-1]).__name__}: {causes[-1]}"))
    if isinstance(error, UnreadableError):
        return Fault(str(error), "wrong", billed=True)
    if any(isinstance(cause, TooLargeError) for cause in causes):
        return Fault(str(causes[-1]), "wrong", billed=True)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Fault(f"its address is not known ({why}); is partner.openai.base_url right?", "refused")
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Fault(f"no secure connection ({why}); is partner.openai.base_url right?", "refused")
    if any(_is_connections(cause) for cause in causes):
        return Fault(f"the connection failed: {why}", "down")
    return Fault(f"an error in this program itself: {why}", "own")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, down to the first cause."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _is_connections(error: BaseException) -> bool:
    modules = {made.__module__.partition(".")[0] for made in type(error).__mro__}
    return isinstance(error, OSError | EOFError) or bool(
        modules & {"aiohttp", "httpx", "httpx2", "httpcore", "h11", "anyio"}
    )


def _status_fault(error: Any, config: OpenAIConfig, secrets: Secrets, ever_answered: bool) -> Fault:
    status, code = error.status_code, str(error.code or "")
    name = f" {one_line(secrets.redact(code), 60)}" if code else ""
    why = f"HTTP {status}{name}: {one_line(secrets.redact(_said(error)))}"
    if code == "insufficient_quota" or status == 402:
        return Fault(f"{why} (the account has no money left)", "account")
    if status == 401:
        return Fault(f"{why} (is the key in ${config.api_key_env} right?)", "account")
    if status in (403, 404) or code == "model_not_found" or (status == 400 and "model" in str(error.param or "")):
        return Fault(f"{why} (is the model {config.model} right, and may this key use it?)", "refused")
    if 300 <= status < 400:
        return Fault(f"{why} (it answers from another address: is partner.openai.base_url right?)", "refused")
    if status in (408, 409, 425, 429, 503) or status >= 500:
        kind: Kind = "busy" if status == 429 else "wrong" if status in (409, 500, 501, 505) else "down"
        return Fault(why, kind, retry_after(error.response.headers))
    parameter = str(error.param) if code in ("unsupported_parameter", "unsupported_value") else None
    if ever_answered or code in ("context_length_exceeded", "content_filter"):
        return Fault(why, "request", parameter=parameter)
    return Fault(f"{why} (does the endpoint know every parameter of the request?)", "refused", parameter=parameter)


def _said(error: Any) -> str:
    """The server's own words, wherever it puts them: OpenAI's error.message, another's detail, or all that it sent."""
    body = error.body
    for said in (body.get("message"), body.get("detail")) if isinstance(body, dict) else (body,):
        if said and isinstance(said, str):
            return said
    return error.response.text.strip() or str(error.message)


def retry_after(headers: Any) -> float | None:
    """Seconds, from Retry-After-Ms or Retry-After (a number or a date, RFC 9110). None if absent or unreadable."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        seconds = math.nan
        with contextlib.suppress(ValueError):
            seconds = float(value) / unit
        if math.isnan(seconds):
            with contextlib.suppress(TypeError, ValueError, OverflowError, OSError, IndexError):
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        if math.isfinite(seconds):
            return min(max(0.0, seconds), LONGEST_PAUSE)
    return None
