"""What fakes of servers share: each serves HTTP on a port of its own on loopback."""

import asyncio
import threading
from typing import Any, Self

from aiohttp import web


class Server:
    """By `async with` it serves on the running event loop; by `with` in its own thread, for a run that has loops or processes of its own."""

    def routes(self, app: web.Application) -> None:
        raise NotImplementedError

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 28)
        self.routes(app)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024).start()
        self.port: int = self._runner.addresses[0][1]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self._in_thread(self.__aenter__())

    def __exit__(self, *_: object) -> None:
        self._in_thread(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _in_thread(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
