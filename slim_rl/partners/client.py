"""The openai client of one event loop, made so that no response can hurt it.

    at most `response_bytes` of a response are read, nothing is decompressed, and no redirect is followed

A response that trickles in is ended by timeouts, which the caller sets.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from slim_rl.config import OpenAIConfig
from slim_rl.errors import ConfigError
from slim_rl.partners.faults import TooLargeError
from slim_rl.partners.secrets import to_base64

OPENAI_URL = "https://api.openai.com/v1"
_KEPT_HEADERS = ("retry-after", "retry-after-ms")


def make_client(url: str, key: str, userinfo: str, config: OpenAIConfig) -> Any:
    """An `openai.AsyncOpenAI` for the running event loop."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):  # type: ignore[misc, valid-type]
        """Reads a response whole, or not at all."""

        async def send(self, request: Any, **options: Any) -> Any:
            response = await super().send(request, **(options | {"stream": True}))
            try:
                encoding = response.headers.get("content-encoding", "identity").lower()
                if encoding not in ("", "identity"):
                    raise TooLargeError("the answer is compressed, which was not asked for")
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > config.response_bytes:
                        raise TooLargeError(f"the answer is longer than {config.response_bytes:,} bytes")
            finally:
                await response.aclose()
            # Other headers are left out: the character set of a content type, for one, may name any decoder.
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            return type(response)(response.status_code, headers=headers, content=bytes(content), request=request)

    headers = {"Accept-Encoding": "identity"}
    if userinfo:
        headers["Authorization"] = f"Basic {to_base64(userinfo)}"
    return AsyncOpenAI(
        api_key=key or "none",
        base_url=url,
        max_retries=0,  # see the docstring of `calls`
        timeout=config.request_seconds,
        default_headers=headers,
        # Half the CPU a request of the default client, and no slower pool with hundreds.
        http_client=BoundedClient(follow_redirects=False),
    )


def read_key(config: OpenAIConfig, url: str) -> str:
    """The key from the environment. Raises ConfigError if there is none where one is needed, or one that no header can hold."""
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and config.base_url is None:
        raise ConfigError(
            f"No key for {url}: set the environment variable {config.api_key_env}, or partner.openai.base_url "
            "for an endpoint that needs none."
        )
    if not (key.isascii() and all(char.isprintable() and char != " " for char in key)):
        raise ConfigError(
            f"The key in ${config.api_key_env} holds a space, a line break or a character outside ASCII, which no key does: "
            "copy it again."
        )
    return key


def split_url(url: str) -> tuple[str, str]:
    """The URL without its credentials, and the credentials (user:password, or ""). Raises ConfigError for one that cannot be used."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "partner.openai.base_url must be like http://localhost:8000/v1: http or https, a host, and no query."
        )
    userinfo, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/"), unquote(userinfo)
