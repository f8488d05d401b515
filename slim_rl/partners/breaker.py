"""Circuit breaker of one endpoint: warns once that it is down, and says when it may be asked again.

    closed --(failures in a row, from more than one game)--> open --(an answer)--> closed
                                                             open --(down for too long)--> stopped, for the rest of the run
    closed --(refused before it ever answered)--> stopped

Failures of a single game never open it, since that game's requests may cause them. If the endpoint answers, but wrongly, each failure
must come from another game. A call is one request of one game with all its retries. The endpoint lets one call at a time ask while open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from slim_rl.config import OpenAIConfig

log = logging.getLogger("slim_rl.partners")

GAMES = 2  # games that must fail in a row


class Breaker:
    """State of the endpoint called `name`, according to the keys `outage_*` of its config.

    Attributes:
        ever_answered: True once any call was answered.
        stopped: sentence that says why no more calls are made; None while they are.
    """

    def __init__(self, name: str, config: OpenAIConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.config, self._clock = name, config, clock
        self.longest = config.outage_wait_minutes * 60  # seconds
        self.stopped: str | None = None
        self.ever_answered = self._refuses = False  # `_refuses`: it is open because of a refusal
        self._row: list[tuple[float, object, bool]] = []  # failures in a row: time, call, whether it was answered
        self._opened_at: float | None = None
        self._ask_at, self._why = 0.0, ""

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def wait(self) -> float:
        """Returns the seconds until the next look; 0.0 if the endpoint may be asked, or is `stopped`."""
        if self._opened_at is None or self.stopped:
            return 0.0
        now = self._clock()
        if now - self._opened_at >= self.longest:
            self._stop(f"has not answered for {_duration(now - self._opened_at)}")
            return 0.0
        # No caller sleeps through a long pause: an answer that was in flight may end it.
        return max(0.0, min(self._ask_at - now, self._opened_at + self.longest - now, self.config.outage_probe_seconds))

    def alive(self, sent: float, answered: bool = False) -> None:
        """Records that a request of time `sent` got a response. One from before a refusal does not end it."""
        self.ever_answered |= answered
        if self._opened_at is not None:
            if self._refuses and sent < self._opened_at:
                return
            down = _duration(self._clock() - self._opened_at)
            log.warning("The partner's endpoint %s answers again, after %s.", self.name, down)
        self._row.clear()
        self._opened_at, self._refuses = None, False

    def failure(self, why: str, call: object, sent: float, answered: bool = False) -> None:
        """Records a failure of the endpoint. `answered`: it did answer, but wrongly."""
        now, self._why = self._clock(), why
        if self._opened_at is not None:
            if sent >= self._opened_at:
                self._ask_at = now + self.config.outage_probe_seconds
            return
        self._row.append((now, call, answered))
        failures = self.config.outage_failures
        calls = {call for _, call, _ in self._row}
        unanswered = {call for _, call, answered in self._row if not answered}
        several = len(unanswered) >= min(GAMES, failures) or len(calls) >= failures
        # Calls that were made together fail together: that alone is not an outage.
        lasts = now - self._row[0][0] >= self.config.outage_seconds
        if lasts and several and len(self._row) >= failures:
            self.open(f"failed {len(self._row)} times in a row", why)

    def refused(self, why: str, call: object, sent: float, surely: bool = False) -> None:
        """Records a refusal that only a person can change.

        Before the first answer the configuration is wrong, and the run stops. Later a key may be renewed: a refusal that `surely` concerns every call opens the breaker; any other is a failure.
        """
        if not self.ever_answered:
            self._why = why
            self._stop("refuses")
        elif surely and not self.is_open:
            self.open("refuses", why)
            self._refuses = True
        else:
            self.failure(why, call, sent)

    def open(self, what: str, why: str, seconds: float = 0.0) -> None:
        """Lets no call ask for `seconds` (at least `outage_probe_seconds`), at most half the remaining time."""
        now, self._why = self._clock(), why
        if self._opened_at is None:
            self._opened_at = self._ask_at = now
            text = "The partner's endpoint %s %s (%s). Calls wait for it; the run stops if it is not back in %s."
            log.warning(text, self.name, what, why, _duration(self.longest))
        self._ask_at = max(self._ask_at, now + min(max(seconds, self.config.outage_probe_seconds), self.longest / 2))

    def _stop(self, what: str) -> None:
        if self.stopped is None:
            self.stopped = f"The partner's endpoint {self.name} {what} ({self._why}). Fix it and resume the run."
            log.error(self.stopped)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
