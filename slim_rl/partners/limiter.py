"""Rate limit shared by all dialogues of an event loop: over any time at most `burst + rate * time` passes, first come, first served."""

from __future__ import annotations

import asyncio

LONGEST_CORRECTION = 60.0  # seconds that the true size of one request may set all others back


class RateLimit:
    """Limit of `per_minute` units per minute, after a burst of `burst` (one second's worth, at least one unit). None: no limit."""

    def __init__(self, per_minute: float | None, burst: float | None = None) -> None:
        self.per_second = (per_minute or 0.0) / 60.0
        self.burst = burst if burst is not None else max(1.0, self.per_second)
        self._used_until = 0.0  # loop time at which everything taken so far has been earned

    async def take(self, units: float = 1.0) -> None:
        """Waits until `units` may be used."""
        if not self.per_second:
            return
        now = asyncio.get_running_loop().time()
        self._used_until = max(self._used_until, now) + units / self.per_second
        if (wait := self._used_until - self.burst / self.per_second - now) > 0:
            await asyncio.sleep(wait)

    def correct(self, units: float) -> None:
        """Takes `units` more, or returns them if negative: the true size of a request is known once it is answered."""
        if self.per_second:
            self._used_until += min(max(units / self.per_second, -LONGEST_CORRECTION), LONGEST_CORRECTION)
