"""Running inference servers: whether one answers, and which model it serves."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from slim_rl.errors import ConfigError, SlimError


@dataclass(frozen=True, slots=True)
class Server:
    """Server that answers.

    Attributes:
        url: address without a path.
        model: served model name; "" if unknown.
        context: largest number of tokens of prompt and response together; None if unknown.
    """

    url: str
    model: str = ""
    context: int | None = None


def connect(url: str) -> Server:
    """Returns the server at `url` (without a trailing ``/v1``). Raises SlimError if no server answers."""
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--server {url} is not an address. Give one like http://127.0.0.1:30000.")
    try:
        # without a proxy, which does not know this machine's ports
        answer = httpx.get(f"{url}/v1/models", timeout=10, trust_env=False, follow_redirects=True).raise_for_status()
        card = answer.json()["data"][0]
        context = card.get("max_model_len")
        return Server(url, str(card["id"]), context if isinstance(context, int) else None)
    # it answers, and does not describe its model
    except (httpx.HTTPStatusError, AttributeError, LookupError, TypeError):
        return Server(url)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SlimError(f"No server answers at --server {url} ({error}). Start it.") from error
