"""Rate limit and outage of an endpoint, which all calls of a process share.

    up --(failures in a row, from more than one game)--> down --(any response)--> up
                                                         down --(for too long)--> stopped, for the rest of the run
    up --(refused before it ever answered)--> stopped

Failures of a single game never count as an outage, since that game's requests may cause them. If the endpoint answers, but wrongly, each
failure must come from another game. A call is one request of one game with all its retries. One call at a time asks an endpoint that is down.
"""

import asyncio
import logging
import time
from collections.abc import Callable

log = logging.getLogger("slim_rl.partners")

GAMES = 2  # games that must fail in a row


class RateLimit:
    """Limit of `per_minute` units per minute after a burst of one second's worth, at least one unit. None: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self.per_second = (per_minute or 0.0) / 60.0
        self._used_until = 0.0  # loop time until which everything taken so far uses up the limit

    async def take(self, units: float = 1.0) -> None:
        """Waits until `units` may be used, first come, first served."""
        if not self.per_second:
            return
        now = asyncio.get_running_loop().time()
        self._used_until = max(self._used_until, now) + units / self.per_second
        burst = max(1.0, 1.0 / self.per_second)  # seconds
        if (wait := self._used_until - burst - now) > 0:
            await asyncio.sleep(wait)


class Breaker:
    """Outages of one endpoint.

    Args:
        name: such as "partner's endpoint http://here".
        longest: seconds that calls wait for it before the run stops.

    Attributes:
        failures, seconds: number and duration of failures in a row, over all games, after which it is down.
        probe_seconds: seconds between looks at an endpoint that is down.
        ever_answered: True once any call was answered.
        stopped: sentence that says why no more calls are made; None while they are.
    """

    failures: int = 8
    seconds: float = 5.0
    probe_seconds: float = 10.0

    def __init__(self, name: str, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.longest, self._clock = name, longest, clock
        self.stopped: str | None = None
        self.ever_answered = False
        self._row: list[tuple[float, object, bool]] = []  # failures in a row: time, call, whether it was answered
        self._opened_at: float | None = None
        self._ask_at, self._why = 0.0, ""

    @property
    def is_open(self) -> bool:
        """Returns True while the endpoint is down."""
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
        return max(0.0, min(self._ask_at - now, self._opened_at + self.longest - now, self.probe_seconds))

    def alive(self, answered: bool = False) -> None:
        """Records that a request got a response."""
        self.ever_answered |= answered
        if self._opened_at is not None:
            down = _duration(self._clock() - self._opened_at)
            log.warning("The %s answers again, after %s.", self.name, down)
        self._row.clear()
        self._opened_at = None

    def failure(self, why: str, call: object, sent: float, answered: bool = False) -> None:
        """Records a failure of the endpoint. `answered`: it did answer, but wrongly."""
        now, self._why = self._clock(), why
        if self._opened_at is not None:
            if sent >= self._opened_at:
                self._ask_at = now + self.probe_seconds
            return
        self._row.append((now, call, answered))
        calls = {call for _, call, _ in self._row}
        unanswered = {call for _, call, answered in self._row if not answered}
        several = len(unanswered) >= min(GAMES, self.failures) or len(calls) >= self.failures
        # Calls that were made together fail together: that alone is not an outage.
        lasts = now - self._row[0][0] >= self.seconds
        if lasts and several and len(self._row) >= self.failures:
            self.open(f"failed {len(self._row)} times in a row", why)

    def refused(self, why: str, call: object, sent: float, surely: bool = False) -> None:
        """Records a refusal that only a person can change.

        Before the first answer the configuration is wrong, and the run stops. Later a key may be renewed: a refusal that `surely`
        concerns every call is an outage at once; any other is a failure.
        """
        if not self.ever_answered:
            self._why = why
            self._stop("refuses")
        elif surely and not self.is_open:
            self.open("refuses", why)
        else:
            self.failure(why, call, sent)

    def open(self, what: str, why: str, seconds: float = 0.0) -> None:
        """Lets no call ask for `seconds` (at least `probe_seconds`), at most half the remaining time."""
        now, self._why = self._clock(), why
        if self._opened_at is None:
            self._opened_at = self._ask_at = now
            text = "The %s %s (%s). Calls wait for it; the run stops if it is not back in %s."
            log.warning(text, self.name, what, why, _duration(self.longest))
        self._ask_at = max(self._ask_at, now + min(max(seconds, self.probe_seconds), self.longest / 2))

    def _stop(self, what: str) -> None:
        if self.stopped is None:
            self.stopped = f"The {self.name} {what} ({self._why}). Fix it and resume the run."
            log.error(self.stopped)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
