"""The openai client of one event loop, made so that no response can hurt it.

    at most `response_bytes` of a response are read, nothing is decompressed, and no redirect is followed
    no server on loopback is reached by a proxy

A response that trickles in is ended by timeouts, which the caller sets.
"""

from __future__ import annotations

import ipaddress
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from slim_rl.config import OpenAIConfig
from slim_rl.errors import ConfigError
from slim_rl.partners.faults import TooLargeError
from slim_rl.partners.secrets import Secrets, to_base64

OPENAI_URL = "https://api.openai.com/v1"
_KEPT_HEADERS = ("retry-after", "retry-after-ms")
_OWN_HEADERS = {"authorization", "accept-encoding", "content-type", "content-length", "host"}


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint's URL, without credentials, and what it takes to be let in: each "" or empty if it takes none."""

    url: str
    key: str
    userinfo: str  # user:password
    headers: dict[str, str]
    query: dict[str, str]

    @property
    def secrets(self) -> Secrets:
        return Secrets(self.key, self.userinfo, *self.headers.values())

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        host = (urlsplit(self.url).hostname or "").rstrip(".")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")


def address_of(config: OpenAIConfig, called: bool = True) -> Address:
    """Returns the config's endpoint. Raises ConfigError if its URL, its key or a header cannot be used.

    Args:
        called: whether any call will be made, which takes a key.
    """
    url, userinfo = _split(config.base_url or OPENAI_URL)
    key = os.environ.get(config.api_key_env, "").strip() if called else ""
    if called and not key and config.base_url is None:
        raise ConfigError(
            f"No key for {url}: set the environment variable {config.api_key_env}, or partner.openai.base_url "
            "for an endpoint that needs none."
        )
    if not _is_printable(key) or " " in key:
        raise ConfigError(
            f"The key in ${config.api_key_env} holds a space, a line break or a character outside ASCII, which no key does: "
            "copy it again."
        )
    headers, query = (
        {name: value.replace("{key}", key) for name, value in values.items()}
        for values in (config.headers, config.query)
    )
    for name, value in headers.items():
        if name.lower() in _OWN_HEADERS or not name.replace("-", "a").isidentifier() or not _is_printable(name + value):
            raise ConfigError(
                f"partner.openai.headers: {name!r} cannot be sent so; the key is in ${config.api_key_env}."
            )
    return Address(url, key, userinfo, headers, query)


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _split(url: str) -> tuple[str, str]:
    """Returns the URL without its credentials, and these. Raises ConfigError for one that cannot be used."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "partner.openai.base_url must be like http://localhost:8000/v1: http or https, a host, and no query, which is in "
            "partner.openai.query."
        )
    userinfo, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/"), unquote(userinfo)


def make_client(address: Address, config: OpenAIConfig) -> Any:
    """Returns an `openai.AsyncOpenAI` for the running event loop."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):  # type: ignore[misc, valid-type]
        """HTTP client that reads a response whole, or not at all."""

        async def send(self, request: Any, **options: Any) -> Any:
            response = await super().send(request, **(options | {"stream": True}))
            try:
                if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
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

    basic = {"Authorization": f"Basic {to_base64(address.userinfo)}"} if address.userinfo else {}
    return AsyncOpenAI(
        api_key=address.key or "none",
        base_url=address.url,
        max_retries=0,  # see the docstring of `endpoint`
        timeout=config.request_seconds,
        default_headers={"Accept-Encoding": "identity", **basic, **address.headers},
        default_query=address.query,
        # Half the processor time per request of the default client, and no slower pool with hundreds.
        http_client=BoundedClient(follow_redirects=False, trust_env=not address.is_local),
    )


def open_files() -> tuple[int, int]:
    """Returns how many files this process may open, and how many requests fit: half, since a game may call an engine too."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return limit, 10**6
    return limit, max(1, (limit - sum(1 for _ in Path("/dev/fd").iterdir())) // 2)
