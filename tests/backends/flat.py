"""A game by itself: a process that annotates its dialogues imports nothing else."""

from __future__ import annotations

from typing import Any

from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.study import MatchingInstrument


class Flat(MatchingEnv):
    """A game in which knowing more is worth nothing."""

    instrument = f"{__name__}.Half"


class Half(MatchingInstrument):
    def state_values(self, dialogue: Any) -> list[float]:
        return [0.5 for turn in dialogue.turns if turn.role == "policy"]
