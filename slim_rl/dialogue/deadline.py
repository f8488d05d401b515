"""The time that a dialogue itself may take.

    what passes inside `not_counted()` counts against no dialogue's deadline

A dialogue that asks more waits more often for its partner's endpoint: for a free slot, a rate limit, a retry, the end of an outage.
If that counted, a busy endpoint would end just the dialogues that ask most. So the endpoint's time is left out, which has its own
limits (`partner.openai.turn_seconds`, `outage_wait_minutes`); the policy's turns, the game's work and a partner that runs in this
process are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class Deadline:
    """As `asyncio.timeout`, for the block that it encloses; `not_counted`, anywhere below it, stops its clock.

    Args:
        seconds: of the dialogue's own time; None for no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._limited, self._open = seconds is not None, False
        self._pauses, self._left = 0, 0.0
        self._found = False  # by `check`

    @property
    def expired(self) -> bool:
        return self._found or self._timeout.expired()

    def check(self) -> None:
        """Raises TimeoutError if the time is up. Players that never wait leave the event loop no moment in which to say so."""
        when = self._timeout.when()
        self._found = when is not None and asyncio.get_running_loop().time() >= when
        if self._found:
            raise TimeoutError

    async def __aenter__(self) -> Self:
        self._token = _current.set(self)
        await self._timeout.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        _current.reset(self._token)
        await self._timeout.__aexit__(kind, error, trace)

    def pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self._runs():
            self._left = (self._timeout.when() or 0.0) - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and self._runs():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)

    def _runs(self) -> bool:
        """Whether there is a clock to stop; a reply that is no longer waited for may outlive its dialogue."""
        return self._limited and self._open and not self._timeout.expired()


@contextmanager
def not_counted() -> Iterator[None]:
    """The time spent inside is not the dialogue's own. For partners that wait for something outside this process."""
    deadline = _current.get()
    if deadline is None:
        yield
        return
    deadline.pause()
    try:
        yield
    finally:
        deadline.resume()
