"""HTTP client of engines, for thousands of requests in flight, with one session per event loop.

httpx, on which slime's client is built, looks through all its connections at every request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from slim_rl.event_loops import PerLoop


@dataclass(frozen=True, slots=True)
class Response:
    """Response of any status, its body as it was sent."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class EngineError(Exception):
    """Engine's answer with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}, {' '.join(text.split())[:300]}")
        self.status = status


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

    async def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """Sends one request without retries and returns its answer. Raises EngineError for an error status, and aiohttp's errors."""
        session = await self._sessions.here()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        async with session.post(url, data=orjson.dumps(body), headers=headers, allow_redirects=False) as response:
            content = await response.read()
        if response.status >= 300:
            raise EngineError(response.status, content.decode("utf-8", "replace"))
        return orjson.loads(content)
