"""The matching game with a notebook: after each message a seat reads its table again, with the scores it was told filled in.

A model of a million parameters can plan from a table, but hardly from numbers scattered over a conversation. The notebook keeps
only the record: what to ask, and when to propose, is still up to the model. Named by `environment` in the local configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.prompt import table_lines
from slim_rl.games.matching.reading.listening import Pair, told_values


class NotebookEnv(MatchingEnv):
    """`MatchingEnv`, whose observations end with what the seat knows by now (on its own scale where scales are off)."""

    def reset(self, game_state: Any = None) -> tuple[str, dict[str, Any]]:
        self._told: tuple[dict[Pair, float], dict[Pair, float]] = ({}, {})
        return super().reset(game_state)

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        observation, done, info = super().step(text)
        if done or info["error"] is not None or info["action"]["kind"] in ("propose", "accept"):
            return observation, done, info
        reader = 1 - info["seat"]
        self._told[reader].update(told_values(text, self.game.roster))
        return f"{observation}\n{self.notes(reader)}", done, info

    def known(self, seat: int) -> Sequence[Sequence[float | None]]:
        """What the seat is shown, else what it was told."""
        told = self._told[seat]
        return [
            [told.get((r, p)) if value is None else value for p, value in enumerate(row)]
            for r, row in enumerate(super().known(seat))
        ]

    def notes(self, seat: int) -> str:
        """The seat's table, one line a reviewer: what it sees, else what it was told, else "?"."""
        return "\n".join(("Your scores:", *table_lines(self.game.roster, self.known(seat)), "You speak on."))
