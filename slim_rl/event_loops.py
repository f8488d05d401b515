"""Event loops: one in a thread for synchronous code (`wait`), and objects that belong to one loop (`PerLoop`)."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Objects per event loop, made at first use and closed when their loop shuts down.

    Args:
        make: function that makes the object, in the running loop.
        close: coroutine function that closes it; None: it needs no closing.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[Any]] | None = None) -> None:
        self._make, self._close = make, close
        self._made: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def here(self) -> T:
        """Returns the object of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made = {other: its for other, its in self._made.items() if not other.is_closed()}
            made = self._make()
            closing = self._closing(made)
            self._made[loop] = made, closing
            await anext(closing)
        return self._made[loop][0]

    async def _closing(self, made: T) -> AsyncGenerator[None, None]:
        """Closes the object when the loop shuts its asynchronous generators down, as asyncio.run does."""
        try:
            yield
        finally:
            if self._close:
                await self._close(made)


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end from synchronous code, on the one event loop of this process."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop(os.getpid())).result()


_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Returns the event loop of a process, in its own thread. A forked process gets a new one."""
    if process not in _LOOPS:
        loop = asyncio.new_event_loop()
        if _LOOPS.setdefault(process, loop) is loop:  # else another thread came first
            threading.Thread(target=loop.run_forever, name="slim_rl", daemon=True).start()
        else:
            loop.close()
    return _LOOPS[process]
