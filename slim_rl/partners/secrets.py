"""Keys and passwords, which go only into a request's headers.

    what comes from an endpoint is redacted whole before it is cut, logged, recorded or reported

`Secrets.redact` does it for the texts an endpoint sends. Every log record of the process passes the same way, tracebacks included,
for any logger and handler.
"""

from __future__ import annotations

import base64
import logging
from typing import Any
from weakref import WeakSet

HIDDEN = "***"
SHORTEST = 4  # a shorter secret is a common word's part: hiding it would make messages unreadable
SHORTEST_SAID = 8  # in a partner's reply the game's own words must not be changed

_all: WeakSet[Secrets] = WeakSet()


class Secrets:
    """The secrets of one endpoint.

    Args:
        key: the API key; "" for none.
        userinfo: ``user:password`` of the endpoint's URL; "" for none.
    """

    def __init__(self, key: str = "", userinfo: str = "") -> None:
        values = {key, userinfo, to_base64(userinfo), *userinfo.split(":", 1)}
        self._values = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        _all.add(self)
        _watch_logs()

    def __repr__(self) -> str:
        return f"Secrets({HIDDEN})"

    def redact(self, text: str, shortest: int = SHORTEST) -> str:
        """`text` with *** in place of every secret of at least `shortest` characters."""
        for value in self._values:
            if len(value) >= shortest:
                text = text.replace(value, HIDDEN)
        return text


def to_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def redact_all(text: str) -> str:
    """`text` without the secrets of any endpoint of this process."""
    for secrets in list(_all):
        text = secrets.redact(text)
    return text


def redact_record(record: logging.LogRecord) -> logging.LogRecord:
    """The record, without any secret in its message or its traceback."""
    try:
        message = record.getMessage()
    except Exception:  # a record that cannot be formatted is its author's fault, and its handler reports it
        return record
    clean = redact_all(message)
    if clean != message:
        record.msg, record.args = clean, None
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        clean = redact_all(trace)
        if clean != trace:
            record.exc_info, record.exc_text = None, clean
    return record


def _watch_logs() -> None:
    """Has every log record of the process redacted. Filters of a logger do not see the records of the loggers below it."""
    make = logging.getLogRecordFactory()
    if getattr(make, "redacts", False):
        return

    def redacting(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return redact_record(make(*args, **kwargs))

    redacting.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(redacting)
