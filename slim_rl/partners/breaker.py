"""The circuit breaker of one endpoint: says once that it is down, and lets one probe at a time find out when it is back.

    closed --(failures in a row)--> open --(a probe succeeds)--> closed
                                     open --(down for too long, or refused for good)--> stopped, for the rest of the run

It holds no timer and belongs to no event loop: callers ask `admit` and sleep as long as it says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("slim_rl.partners")


class Breaker:
    """Counts failures in a row over all calls.

    Args:
        endpoint: how to call it in messages.
        failures: failures in a row that open the breaker, if
        silent_seconds: the first of them was so long ago. (Calls that were made together fail together: that alone is no outage.)
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
        self._clock = clock
        self._in_a_row = 0
        self._row_began = 0.0
        self.ever_answered = False
        self._opened_at: float | None = None
        self._probe_at = 0.0
        self._prober: object | None = None
        self._why = ""

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def admit(self, call: object) -> float:
        """Seconds to wait before asking again; 0.0: go on, unless `stopped`. `release` the call in the end."""
        if self._opened_at is None or self.stopped:
            return 0.0
        now = self._clock()
        if now - self._opened_at >= self.wait_seconds:
            self._stop(
                f"The partner's endpoint {self.endpoint} has not answered for {_duration(now - self._opened_at)}"
            )
            return 0.0
        if self._prober is None and now >= self._probe_at:
            self._prober = call
            return 0.0
        soon = self.probe_seconds / 20
        until_stop = self._opened_at + self.wait_seconds - now
        return max(0.001, min(until_stop, soon if self._prober else max(soon, self._probe_at - now)))

    def release(self, call: object) -> None:
        """The call is over, whatever became of it."""
        if self._prober is call:
            self._prober = None

    def success(self) -> None:
        """The endpoint answered."""
        self._in_a_row, self.ever_answered = 0, True
        if self._opened_at is not None:
            down = self._clock() - self._opened_at
            log.warning("The partner's endpoint %s answers again, after %s.", self.endpoint, _duration(down))
            self._opened_at = None

    def failure(self, why: str, call: object) -> None:
        """A call failed in a way that the endpoint is to blame for."""
        now = self._clock()
        self._why = why
        if self._in_a_row == 0:
            self._row_began = now
        self._in_a_row += 1
        if self._prober is call:
            self._probe_at = now + self.probe_seconds
        elif (
            self._opened_at is None and self._in_a_row >= self.failures and now - self._row_began >= self.silent_seconds
        ):
            self.open(f"failed {self._in_a_row} times in a row", why, self.probe_seconds)

    def refused(self, why: str, call: object) -> None:
        """The endpoint refuses in a way that does not mend itself: a wrong key, an unknown model. If it has never answered, the
        configuration is wrong and the run stops; else it counts as a failure, for a key may be renewed.
        """
        if self.ever_answered:
            self.failure(why, call)
        else:
            self._why = why
            self._stop(f"The partner's endpoint {self.endpoint} refuses")

    def open(self, what: str, why: str, seconds: float) -> None:
        """Lets no call through for `seconds`; then one probe at a time."""
        now = self._clock()
        if self._opened_at is None:
            self._opened_at = now
            log.warning(
                "The partner's endpoint %s %s (%s). Calls wait for it; the run stops if it is not back in %s.",
                self.endpoint, what, why, _duration(self.wait_seconds),
            )  # fmt: skip
        self._why = why
        self._probe_at = max(self._probe_at, now + seconds)

    def _stop(self, what: str) -> None:
        self.stopped = f"{what} ({self._why}); no more calls are made. Mend it and resume the run."
        log.error(self.stopped)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
