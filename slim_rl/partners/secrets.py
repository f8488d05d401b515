"""Secrets of an endpoint, removed from everything it sends before that is cut, logged, recorded or reported."""

from __future__ import annotations

HIDDEN = "***"
SHORTEST = 4  # characters; a shorter secret is part of ordinary words
SHORTEST_IN_REPLY = 8  # the same in a partner's reply, whose words must not be changed


class Secrets:
    """API key and header values of one endpoint.

    Args:
        values: the secrets; those shorter than `SHORTEST` are ignored.
    """

    def __init__(self, *values: str) -> None:
        self._values = sorted((value for value in set(values) if len(value) >= SHORTEST), key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Secrets({HIDDEN})"

    def redact(self, text: str, shortest: int = SHORTEST) -> str:
        """Returns `text` with *** in place of every secret of at least `shortest` characters."""
        for value in self._values:
            if len(value) >= shortest:
                text = text.replace(value, HIDDEN)
        return text
