"""A rate limit shared by every dialogue of the process: over any stretch of time at most `burst + rate * time` is let through.

It hands out points in time and leaves the sleeping to the caller, so it belongs to no event loop. Callers are served in the
order they come (the generic cell rate algorithm, ITU-T I.371).
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_CORRECTION = 60.0  # seconds that the true size of one request may set all others back


class RateLimit:
    """At most `per_minute` units a minute, after a burst of `burst` (a second's worth, and at least one unit)."""

    def __init__(
        self, per_minute: float | None, burst: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds_per_unit = 60.0 / per_minute if per_minute else 0.0
        units = burst if burst is not None else max(1.0, (per_minute or 0.0) / 60.0)
        self._slack = units * self.seconds_per_unit
        self._clock = clock
        self._full_at = clock()  # when everything reserved so far will have flowed off

    def reserve(self, units: float = 1.0) -> float:
        """Takes `units` and returns the seconds to wait before using them."""
        now = self._clock()
        self._full_at = max(self._full_at, now) + units * self.seconds_per_unit
        # One request larger than the burst must pass too: it waits for what was there before it, and the next ones for it.
        return max(0.0, self._full_at - now - max(self._slack, units * self.seconds_per_unit))

    def correct(self, units: float) -> None:
        """Takes `units` more (or gives them back, if negative): the true size of a request is known once it is answered. No
        correction is worth more than `LONGEST_CORRECTION`.
        """
        seconds = units * self.seconds_per_unit
        self._full_at += min(max(seconds, -LONGEST_CORRECTION), LONGEST_CORRECTION)
