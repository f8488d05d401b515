"""The openai client of one event loop, limited so that no response can harm the process.

Invariants:
    At most `response_bytes` of a response are read, nothing is decompressed, and no redirect is followed.
    A server on loopback is never reached through a proxy.

A slow response is ended by timeouts, which the caller sets.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from slim_rl.config import OpenAIConfig
from slim_rl.errors import ConfigError
from slim_rl.partners.faults import TooLargeError

OPENAI_URL = "https://api.openai.com/v1"
_READ_HEADERS = ("retry-after", "retry-after-ms")


@dataclass(frozen=True, slots=True)
class Address:
    """URL of an endpoint, its API key ("" for none), and further headers and query parameters of each request."""

    url: str
    key: str
    headers: dict[str, str]
    query: dict[str, str]

    @property
    def is_local(self) -> bool:
        """Returns True if the endpoint is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def address_of(config: OpenAIConfig, called: bool = True) -> Address:
    """Returns the config's endpoint. Raises ConfigError if its key is missing or cannot be sent.

    Args:
        called: True if requests will be made, which takes a key.
    """
    url = (config.base_url or OPENAI_URL).rstrip("/")
    key = os.environ.get(config.api_key_env, "").strip() if called else ""
    if called and not key and config.base_url is None:
        raise ConfigError(
            f"No key for {url}. Set the environment variable {config.api_key_env}, or partner.openai.base_url for an endpoint "
            "that needs none."
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(
            f"The key in ${config.api_key_env} holds a space, a line break or a character outside ASCII. Copy it again."
        )
    headers = {name: value.replace("{key}", key) for name, value in config.headers.items()}
    return Address(url, key, headers, config.query)


def make_client(address: Address, config: OpenAIConfig) -> Any:
    """Returns an `openai.AsyncOpenAI` for the running event loop."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):  # type: ignore[misc, valid-type]
        """HTTP client that refuses a response longer than `response_bytes`."""

        async def send(self, request: Any, **options: Any) -> Any:
            response = await super().send(request, **(options | {"stream": True}))
            try:
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > config.response_bytes:
                        raise TooLargeError(f"the answer is longer than {config.response_bytes:,} bytes")
            finally:
                await response.aclose()
            # Other headers are dropped: the character set of a content type, for one, may name any decoder.
            headers = {name: response.headers[name] for name in _READ_HEADERS if name in response.headers}
            return type(response)(response.status_code, headers=headers, content=bytes(content), request=request)

    return AsyncOpenAI(
        api_key=address.key or "none",
        base_url=address.url,
        max_retries=0,  # see the docstring of `endpoint`
        timeout=config.request_seconds,
        default_headers={"Accept-Encoding": "identity", **address.headers},
        default_query=address.query,
        # Half the processor time per request of the default client, and no slower pool with hundreds of requests.
        http_client=BoundedClient(follow_redirects=False, trust_env=not address.is_local),
    )
