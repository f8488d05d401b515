"""Keys and passwords, which go only into a request's headers.

    what comes from an endpoint is redacted whole before it is cut, logged, recorded or reported

`Secrets.redact` does it for the texts an endpoint sends. What any logger of the process says passes the same way, tracebacks
included: each handler has a filter that does it, from the moment an endpoint is made, or first asked on an event loop.
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
    """The secrets of one endpoint.

    Args:
        key: the API key; "" for none.
        userinfo: ``user:password`` of the endpoint's URL; "" for none.
    """

    def __init__(self, key: str = "", userinfo: str = "") -> None:
        values = {key, userinfo, to_base64(userinfo), *userinfo.split(":", 1)}
        self._values = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        _all.add(self)
        redact_logs()

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


def redact_logs() -> None:
    """Has every handler of the process redact what it is given. A handler hears all loggers below its own, which a logger's filter
    does not.
    """
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            handler.addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    """Takes every secret out of the record's message and its traceback."""
    try:
        message = record.getMessage()
    except Exception:  # a record that cannot be formatted is its author's fault, and its handler reports it
        return True
    clean = redact_all(message)
    if clean != message:
        record.msg, record.args = clean, None
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        clean = redact_all(trace)
        if clean != trace:
            record.exc_info, record.exc_text = None, clean
    return True
