"""Rate limit shared by all dialogues of an event loop, first come, first served."""

from __future__ import annotations

import asyncio


class RateLimit:
    """Limit of `per_minute` units per minute after a burst of one second's worth, at least one unit. None: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self.per_second = (per_minute or 0.0) / 60.0
        self._used_until = 0.0  # loop time until which everything taken so far uses up the limit

    async def take(self, units: float = 1.0) -> None:
        """Waits until `units` may be used."""
        if not self.per_second:
            return
        now = asyncio.get_running_loop().time()
        self._used_until = max(self._used_until, now) + units / self.per_second
        burst = max(1.0, 1.0 / self.per_second)  # seconds
        if (wait := self._used_until - burst - now) > 0:
            await asyncio.sleep(wait)
