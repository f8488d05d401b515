"""Circuit breaker of one endpoint: warns once that it is down, and admits one probe at a time until it answers again.

    closed --(failures in a row, from more than one game)--> open --(a probe succeeds)--> closed
                                                             open --(down for too long)--> stopped, for the rest of the run
    closed --(refused before it ever answered)--> stopped

One game's failures never open it: they may be its own fault. If the endpoint answers, but wrongly, each failure must come from another
game. The breaker belongs to no event loop: callers of `admit` sleep themselves. A call is one request of one game with all its retries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from slim_rl.config import OpenAIConfig

log = logging.getLogger("slim_rl.partners")

GAMES = 2  # that must fail in a row


class Breaker:
    """State of the endpoint called `name`, by the keys `outage_*` of its config.

    Attributes:
        ever_answered: whether any call has been answered.
        stopped: sentence that says why no call is made any more; None while calls are made.
    """

    def __init__(self, name: str, config: OpenAIConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.config, self._clock = name, config, clock
        self.probe_seconds, self.wait_seconds = config.outage_probe_seconds, config.outage_wait_minutes * 60
        self.stopped: str | None = None
        self.ever_answered = self._refuses = False  # `_refuses`: the reason why it is open
        self._row: list[tuple[float, object, bool]] = []  # failures in a row: time, call, whether it was answered
        self._opened_at: float | None = None
        self._probe_at, self._why = 0.0, ""
        self._prober: object | None = None
        self._last_prober: object | None = None

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def admit(self, call: object) -> float:
        """Returns the seconds to wait before asking again; 0.0: ask now, unless `stopped`. `release` the call in the end."""
        if self._opened_at is None or self.stopped:
            return 0.0
        now = self._clock()
        down = now - self._opened_at
        if down >= self.wait_seconds:
            self._stop(f"The partner's endpoint {self.name} has not answered for {_duration(down)}")
            return 0.0
        soon = self.probe_seconds / 20
        # The last prober lets others go first: its request may be one that fails for itself alone.
        probe_at = self._probe_at + 2 * soon if call is self._last_prober else self._probe_at
        if self._prober is None and now >= probe_at:
            self._prober = self._last_prober = call
            return 0.0
        # No caller sleeps through a whole long pause: an answer that was in flight may end it.
        wait = soon if self._prober else max(soon, min(probe_at - now, self.probe_seconds))
        return max(0.001, min(self.wait_seconds - down, wait))

    def release(self, call: object) -> None:
        """Ends the call's probe, if it had one."""
        if self._prober is call:
            self._prober = None

    def alive(self, call: object = None, answered: bool = False) -> None:
        """Notes that the endpoint is up. If it refuses, only its probe says so: older calls still return."""
        self.ever_answered |= answered
        if self._refuses and call is not None and call is not self._prober:
            return
        self._row.clear()
        if self._opened_at is not None:
            down = _duration(self._clock() - self._opened_at)
            log.warning("The partner's endpoint %s answers again, after %s.", self.name, down)
            self._opened_at = self._last_prober = None
        self._refuses = False

    def failure(self, why: str, call: object, answered: bool = False) -> None:
        """Notes a failure of the endpoint's. `answered`: it did answer, but wrongly."""
        now, self._why = self._clock(), why
        if self._opened_at is not None:
            if self._prober is call:
                self._probe_at = now + self.probe_seconds
            return
        self._row.append((now, call, answered))
        failures = self.config.outage_failures
        # Calls that were made together fail together: that alone is not an outage.
        silent = now - self._row[0][0] >= self.config.outage_seconds
        calls = {call for _, call, _ in self._row}
        unanswered = {call for _, call, answered in self._row if not answered}
        several = len(unanswered) >= min(GAMES, failures) or len(calls) >= failures
        if silent and several and len(self._row) >= failures:
            self.open(f"failed {len(self._row)} times in a row", why, self.probe_seconds)

    def refused(self, why: str, call: object, surely: bool = False) -> None:
        """Notes a refusal that only a person can change. Before the first answer the configuration is wrong, and the run stops.

        Later a key may be renewed: a refusal that `surely` concerns every call opens the breaker, and another one is a failure.
        """
        if not self.ever_answered:
            self._why = why
            self._stop(f"The partner's endpoint {self.name} refuses")
        elif surely and self._opened_at is None:
            self.open("refuses", why, self.probe_seconds)
            self._refuses = True
        else:
            self.failure(why, call)

    def open(self, what: str, why: str, seconds: float) -> None:
        """Admits no call for `seconds`, at most half the remaining time; then one probe at a time."""
        now, self._why = self._clock(), why
        if self._opened_at is None:
            self._opened_at, self._probe_at, self._last_prober = now, now, None
            text = "The partner's endpoint %s %s (%s). Calls wait for it; the run stops if it is not back in %s."
            log.warning(text, self.name, what, why, _duration(self.wait_seconds))
        self._probe_at = max(self._probe_at, now + min(seconds, self.wait_seconds / 2))

    def _stop(self, what: str) -> None:
        if self.stopped is None:
            self.stopped = f"{what} ({self._why}); no more calls are made. Fix it and resume the run."
            log.error(self.stopped)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
