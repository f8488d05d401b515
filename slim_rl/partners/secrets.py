"""Keys and passwords, which go only into a request's headers.

    what comes from an endpoint is redacted whole before it is cut, logged, recorded or reported

`Secrets.redact` does it for texts of an endpoint. Each handler of the process has a filter that does it for log records, tracebacks
included, from the moment an endpoint is made, or first asked on an event loop.
"""

from __future__ import annotations

import base64
import logging
from weakref import WeakSet

HIDDEN = "***"
SHORTEST = 4  # a shorter secret is a common word's part: hiding it would make messages unreadable
SHORTEST_SAID = 8  # in a partner's reply the game's own words must not be changed

_all: WeakSet[Secrets] = WeakSet()


class Secrets:
    """Secrets of one endpoint.

    Args:
        key: the API key; "" for none.
        userinfo: ``user:password`` of the endpoint's URL; "" for none.
        others: values of headers that may be secret too.
    """

    def __init__(self, key: str = "", userinfo: str = "", *others: str) -> None:
        values = {key, userinfo, to_base64(userinfo), *userinfo.split(":", 1), *others}
        self._values = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        _all.add(self)
        redact_logs()

    def __repr__(self) -> str:
        return f"Secrets({HIDDEN})"

    def redact(self, text: str, shortest: int = SHORTEST) -> str:
        """Returns `text` with *** in place of every secret of at least `shortest` characters."""
        for value in self._values:
            if len(value) >= shortest:
                text = text.replace(value, HIDDEN)
        return text


def to_base64(text: str) -> str:
    """Returns the UTF-8 bytes of `text` in base 64."""
    return base64.b64encode(text.encode()).decode()


def redact_logs() -> None:
    """Gives every handler of the process the filter: it has the records of all loggers below its own, unlike a logger's filter."""
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            handler.addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    """Removes every secret from the record's message and its traceback. Returns True."""
    try:
        message = record.getMessage()
    except Exception:  # a record that cannot be formatted is its author's fault, and its handler reports it
        return True
    clean = _redact_all(message)
    if clean != message:
        record.msg, record.args = clean, None
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        clean = _redact_all(trace)
        if clean != trace:
            record.exc_info, record.exc_text = None, clean
    return True


def _redact_all(text: str) -> str:
    for secrets in list(_all):
        text = secrets.redact(text)
    return text
