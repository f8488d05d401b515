"""A rate limit shared by every dialogue of an event loop: over any stretch of time at most `burst + rate * time` is let through,
in the order in which they come.

aiolimiter alone lets small requests overtake large ones. Asked for twice what its limit allows, it had requests of 500 tokens wait a
second and those of 3,000 two minutes, to the end of the trial (in order: six seconds each); and large ones are those of the
dialogues that ask most.
"""

from __future__ import annotations

import asyncio

from aiolimiter import AsyncLimiter

LONGEST_CORRECTION = 60.0  # seconds that the true size of one request may set all others back


class RateLimit:
    """At most `per_minute` units a minute, after a burst of `burst` (a second's worth, and at least one unit). None: no limit."""

    def __init__(self, per_minute: float | None, burst: float | None = None) -> None:
        self.per_second = (per_minute or 0.0) / 60.0
        units = burst if burst is not None else max(1.0, self.per_second)
        self._bucket = AsyncLimiter(units, units / self.per_second) if per_minute else None
        self._turn = asyncio.Lock()
        self._owed = 0.0

    async def take(self, units: float = 1.0) -> None:
        """Waits until `units` may be used. A request larger than the burst takes it several times."""
        if self._bucket is None:
            return
        async with self._turn:
            due, self._owed = units + self._owed, 0.0
            while due > 0:
                part = min(due, self._bucket.max_rate)
                await self._bucket.acquire(part)
                due -= part
            self._owed += due

    def correct(self, units: float) -> None:
        """Takes `units` more (or gives them back, if negative): the true size of a request is known once it is answered. No
        correction is worth more than `LONGEST_CORRECTION`.
        """
        most = LONGEST_CORRECTION * self.per_second
        self._owed += min(max(units, -most), most)
