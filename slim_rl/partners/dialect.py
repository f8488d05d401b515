"""Which request parameters a model takes, learned from what its endpoint refuses by name and kept for the process.

    a request is addressed in a cassette, and its cost bounded, as it was asked for: only what is sent differs

Only what a model can do without is left out; anything else that it refuses is a fault of the config.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

RENAMED = {"max_tokens": "max_completion_tokens"}
LEFT_OUT = ("temperature", "top_p", "seed")


class Dialect:
    """What one endpoint's model takes.

    Attributes:
        refused: the parameters that it does not take, in the order they were learned.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._said: list[str] = []

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request as the model takes it."""
        if not self.refused:
            return body
        names = {name: RENAMED.get(name) if name in self.refused else name for name in body}
        return {taken: body[name] for name, taken in names.items() if taken}

    def learn(self, parameter: str | None, sent: dict[str, Any]) -> bool:
        """Notes a parameter that was refused. Returns whether the request `sent` may do without it."""
        if parameter not in sent or parameter not in (*RENAMED, *LEFT_OUT):
            return False
        self.recall([parameter])
        return True

    def recall(self, parameters: Iterable[str]) -> None:
        """Notes parameters that the model is known to refuse."""
        known = (*RENAMED, *LEFT_OUT)
        self.refused += [name for name in parameters if name in known and name not in self.refused]

    def remark(self, model: str) -> str | None:
        """One sentence on what is sent otherwise than the config says, once for each change; None if there is nothing to say."""
        if self._said == self.refused:
            return None
        self._said = list(self.refused)
        changes = [f"{name} is sent as {RENAMED[name]}" for name in self.refused if name in RENAMED]
        dropped = [name for name in self.refused if name in LEFT_OUT]
        if dropped:
            changes.append(f"{' and '.join(dropped)} {'are' if len(dropped) > 1 else 'is'} left out")
        unsure = ": its replies may differ from run to run" if {"seed", "temperature"} & set(dropped) else ""
        return f"{model} refuses some parameters: {', '.join(changes)}{unsure}."
