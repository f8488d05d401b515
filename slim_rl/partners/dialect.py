"""Request parameters that a model refuses, learned from its endpoint and kept for the process.

A request is addressed in a cassette, and its cost bounded, as the config asks for it: only what is sent differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

RENAMED = {"max_tokens": "max_completion_tokens"}
LEFT_OUT = ("temperature", "top_p", "seed")
LEARNED = (*RENAMED, *LEFT_OUT)  # what a model can do without; any other refusal is a fault of the config


class Dialect:
    """Parameters that one endpoint's model takes; `refused` has the others, in the order they were learned."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._remarked = 0

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the request as the model takes it."""
        names = {name: RENAMED.get(name) if name in self.refused else name for name in body}
        return {taken: body[name] for name, taken in names.items() if taken}

    def recall(self, parameters: Iterable[str]) -> None:
        """Notes parameters that the model is known to refuse."""
        self.refused += [name for name in parameters if name in LEARNED and name not in self.refused]

    def remark(self, model: str) -> str | None:
        """Returns a sentence on what is sent otherwise than the config says; None if it was returned before."""
        if self._remarked == len(self.refused):
            return None
        self._remarked = len(self.refused)
        changes = [f"{name} is sent as {RENAMED[name]}" for name in self.refused if name in RENAMED]
        if dropped := [name for name in self.refused if name in LEFT_OUT]:
            changes.append(f"{' and '.join(dropped)} {'are' if len(dropped) > 1 else 'is'} left out")
        unsure = ": its replies may differ from run to run" if {"seed", "temperature"} & set(dropped) else ""
        return f"{model} refuses some parameters: {', '.join(changes)}{unsure}."
