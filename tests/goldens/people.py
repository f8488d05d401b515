"""The recorded human games: what each turn becomes and what each game's reward is."""

import unittest
from typing import Any

from tests.paths import HUMAN


def figures() -> list[dict[str, Any]]:
    """Computes, per game, its turns by kind, its plans and its reward, from the words that people typed."""
    from slim_rl.games.matching.study.recorded import conversation, playable, read_recorded

    if not HUMAN.exists():
        raise unittest.SkipTest("the recorded human games are not beside the project")
    return [
        {
            "reward": game.reward,
            "turns": [f"{turn.seat}{'' if turn.recorded else ' supplied'}" for turn in playable(game)],
            "rewards": [conversation(game, seat)["reward"] for seat in (0, 1)],
            "trained": [sum(conversation(game, seat)["train"]) for seat in (0, 1)],
        }
        for game in read_recorded(HUMAN / "optimization.jsonl")
    ]
