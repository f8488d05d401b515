"""HTTP client of engines, for thousands of requests in flight, with one session per event loop.

httpx, on which slime's client is built, looks through all its connections at every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from slim_rl.event_loops import PerLoop


@dataclass(frozen=True, slots=True)
class Response:
    """Response of any status, its body as it was sent."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class Client:
    """Client that uses no proxy, follows no redirect and decompresses nothing.

    Timeouts are the caller's: a long queue is no error.
    """

    def __init__(self) -> None:
        self._sessions = PerLoop(self._session, aiohttp.ClientSession.close)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            trust_env=False,
            auto_decompress=False,
        )

    async def send(self, url: str, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
        """Posts a JSON body. Raises aiohttp's errors."""
        session = await self._sessions.here()
        headers = {"Content-Type": "application/json", **(headers or {})}
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            return Response(response.status, await response.read(), response.headers)

    async def close(self) -> None:
        """Closes the running loop's connections, which its end would do as well."""
        await (await self._sessions.here()).close()
