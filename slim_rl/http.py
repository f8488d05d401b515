"""HTTP client for thousands of requests in flight, for engines and endpoints alike, with one session per event loop.

httpx, on which slime's and openai's clients are built, looks through all its connections at every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from slim_rl.event_loops import PerLoop


class TooLargeError(Exception):
    """Response longer than the caller allows."""


@dataclass(frozen=True, slots=True)
class Response:
    """Response of any status, its body as it was sent."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class Client:
    """Client that follows no redirect and decompresses nothing. Timeouts are the caller's: a long queue is no error.

    Args:
        proxies: whether the environment's proxies are used.
    """

    def __init__(self, proxies: bool = False) -> None:
        self._proxies = proxies
        self._sessions = PerLoop(self._session, aiohttp.ClientSession.close)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            trust_env=self._proxies,
            auto_decompress=False,
        )

    async def send(
        self,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        most: float = float("inf"),
    ) -> Response:
        """Posts a JSON body, or gets a URL (None). Raises aiohttp's errors, and TooLargeError above `most` bytes."""
        session, method = await self._sessions.here(), "GET" if body is None else "POST"
        headers = {"Content-Type": "application/json", **(headers or {})}
        async with session.request(
            method, url, data=body, headers=headers, params=query, allow_redirects=False
        ) as response:
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > most:
                    raise TooLargeError(f"the answer is longer than {most:,} bytes")
            return Response(response.status, bytes(content), response.headers)

    async def close(self) -> None:
        """Closes the running loop's connections, which its end would do as well."""
        await (await self._sessions.here()).close()
