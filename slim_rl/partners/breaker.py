"""The circuit breaker of one endpoint: warns once that it is down, and lets one probe at a time find out when it is back.

    closed --(failures in a row, of more than one game)--> open --(a probe succeeds)--> closed
                                                           open --(down for too long)--> stopped, for the rest of the run
    closed --(refused before it ever answered)--> stopped

One game's request, tried however often, never opens it: what only one game meets may be that game's own fault. Where
the endpoint does answer, but wrongly, the same may hold for a few games: then as many games as failures must meet it.
The breaker holds no timer and belongs to no event loop: callers ask `admit` and sleep for the time it returns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("slim_rl.partners")

GAMES = 2  # that have to fail in a row


class Breaker:
    """Counts failures in a row over all calls. A call is one request of one game with all its retries, and any object names it.

    Args:
        endpoint: how to call it in messages.
        failures: failures in a row, of two calls that were not answered or of as many that were answered wrongly, that open the
            breaker, if
        silent_seconds: the first of them was so long ago. (Calls that were made together fail together: that alone is not an outage.)
        probe_seconds: wait between probes while it is open.
        wait_seconds: how long it may be open before the run stops.

    Attributes:
        ever_answered: whether any call has been answered.
        stopped: the sentence that says why no call is made any more; None while calls are.
    """

    def __init__(
        self,
        endpoint: str,
        failures: int,
        silent_seconds: float,
        probe_seconds: float,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.failures, self.silent_seconds = failures, silent_seconds
        self.probe_seconds, self.wait_seconds = probe_seconds, wait_seconds
        self.stopped: str | None = None
        self.ever_answered = False
        self._clock = clock
        self._in_a_row = 0
        self._failed: set[object] = set()  # the calls among them
        self._unanswered: set[object] = set()
        self._row_began = 0.0
        self._opened_at: float | None = None
        self._refuses = False  # that is why it is open
        self._probe_at = 0.0
        self._prober: object | None = None
        self._last_prober: object | None = None
        self._why = ""

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def admit(self, call: object) -> float:
        """Seconds to wait before asking again; 0.0: ask now, unless `stopped`. `release` the call in the end."""
        if self._opened_at is None or self.stopped:
            return 0.0
        now = self._clock()
        if now - self._opened_at >= self.wait_seconds:
            self._stop(
                f"The partner's endpoint {self.endpoint} has not answered for {_duration(now - self._opened_at)}"
            )
            return 0.0
        soon = self.probe_seconds / 20
        # Whoever probed last in vain lets others go first: its request may be one that fails for itself alone.
        probe_at = self._probe_at + 2 * soon if call is self._last_prober else self._probe_at
        if self._prober is None and now >= probe_at:
            self._prober = self._last_prober = call
            return 0.0
        until_stop = self._opened_at + self.wait_seconds - now
        # No caller sleeps through a whole long pause: an answer that was in flight may end it.
        return max(0.001, min(until_stop, soon if self._prober else max(soon, min(probe_at - now, self.probe_seconds))))

    def release(self, call: object) -> None:
        """The call has its answer or its fault."""
        if self._prober is call:
            self._prober = None

    def success(self, call: object = None) -> None:
        """The endpoint answered."""
        self.ever_answered = True
        self.alive(call)

    def alive(self, call: object = None) -> None:
        """The endpoint is up, though it may not have given the answer asked for. While it refuses, only the probe's answer says so:
        those of calls that were made before it began to still come in.
        """
        if self._refuses and call is not None and call is not self._prober:
            return
        self._in_a_row = 0
        self._failed.clear()
        self._unanswered.clear()
        if self._opened_at is not None:
            down = self._clock() - self._opened_at
            log.warning("The partner's endpoint %s answers again, after %s.", self.endpoint, _duration(down))
            self._opened_at = self._last_prober = None
        self._refuses = False

    def failure(self, why: str, call: object, answered: bool = False) -> None:
        """A call failed in a way that the endpoint is to blame for. `answered`: it did answer, but wrongly."""
        now = self._clock()
        self._why = why
        if self._in_a_row == 0:
            self._row_began = now
        self._in_a_row += 1
        self._failed.add(call)
        if not answered:
            self._unanswered.add(call)
        if self._opened_at is not None:
            if self._prober is call:
                self._probe_at = now + self.probe_seconds
            return
        silent = now - self._row_began >= self.silent_seconds
        several = len(self._unanswered) >= min(GAMES, self.failures) or len(self._failed) >= self.failures
        if silent and several and self._in_a_row >= self.failures:
            self.open(f"failed {self._in_a_row} times in a row", why, self.probe_seconds)

    def refused(self, why: str, call: object, surely: bool = False) -> None:
        """The endpoint refuses in a way that only a person can change: a wrong key, an unknown model.

        If it has never answered, the configuration is wrong and the run stops. Else a key may be renewed and an account filled: a
        refusal that `surely` concerns every call opens the breaker, and another one counts as a failure.
        """
        if not self.ever_answered:
            self._why = why
            self._stop(f"The partner's endpoint {self.endpoint} refuses")
        elif surely and self._opened_at is None:
            self.open("refuses", why, self.probe_seconds)
            self._refuses = True
        else:
            self.failure(why, call)

    def open(self, what: str, why: str, seconds: float) -> None:
        """Lets no call through for `seconds`, at most half the time there is; then one probe at a time."""
        now = self._clock()
        if self._opened_at is None:
            self._opened_at, self._probe_at, self._last_prober = now, now, None
            log.warning(
                "The partner's endpoint %s %s (%s). Calls wait for it; the run stops if it is not back in %s.",
                self.endpoint, what, why, _duration(self.wait_seconds),
            )  # fmt: skip
        self._why = why
        self._probe_at = max(self._probe_at, now + min(seconds, self.wait_seconds / 2))

    def _stop(self, what: str) -> None:
        if self.stopped is None:
            self.stopped = f"{what} ({self._why}); no more calls are made. Fix it and resume the run."
            log.error(self.stopped)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
