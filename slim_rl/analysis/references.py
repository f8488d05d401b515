"""Reference lines for rewards (plans made without a dialogue, recorded people), with intervals over games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl import statistics as st
from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.environment import MATCHING, game_of
from slim_rl.errors import DataError
from slim_rl.measured import measured

BOARDS = 1000  # maximum number of games per line

Games = Sequence[tuple[Any, int]]


def games_of(log: Log, seed: int) -> tuple[str, list[tuple[Any, int]]]:
    """Returns the log's commonest environment, and its distinct games with the policy's seat (a sample of at most `BOARDS`)."""
    environment = str(log.frame["environment"].mode()[0])
    rows = log.frame[log.frame["environment"] == environment].drop_duplicates("cluster")
    drawn = rows.sample(min(BOARDS, len(rows)), random_state=seed)
    return environment, [(read_dialogue(log, row).get("game_state") or {}, int(row.seat)) for row in drawn.itertuples()]


def reference_lines(games: Games, people: Path | None = None, environment: str = MATCHING) -> dict[str, dict[str, Any]]:
    """Returns lines by name: {"reward": mean, interval and n, "about", "drawn"}; empty if the game has none.

    Args:
        people: file of recorded human games, for one more line; None: no such line.

    Raises:
        DataError: `people` cannot be used.
    """
    game = measured(game_of(environment))
    lines: dict[str, Any] = dict(game.references(games))
    if people is not None:
        recorded = game.people(people, games)
        if not recorded:
            raise DataError(f"{environment} has no recorded human games. Leave {people} out.")
        lines |= recorded
    return {name: _with_interval(line) for name, line in lines.items()}


def frontier_curves(games: Games, most: int, seed: int, environment: str) -> dict[str, dict[str, Any]]:
    """Returns mean rewards of simulated askers after 0, 1, ..., `most` questions: name -> {"mean", "low", "high", "boards"}."""
    curves = measured(game_of(environment)).frontier(games, most, seed) if games else {}
    return {name: _curve(curve[0]) for name, curve in curves.items()}


def _curve(rewards: np.ndarray) -> dict[str, Any]:
    points = [_mean(column) for column in rewards.T]
    return {
        "mean": [point["value"] for point in points],
        "low": [point["low"] for point in points],
        "high": [point["high"] for point in points],
        "boards": len(rewards),
    }


def _with_interval(line: Mapping[str, Any]) -> dict[str, Any]:
    reward = _mean(np.asarray(line["rewards"], dtype=float))
    return {"reward": reward, "about": line["about"], "drawn": line.get("drawn", True)}


def _mean(rewards: np.ndarray) -> dict[str, Any]:
    """Returns the mean of one reward per game, with its t interval cut at 0 and 1."""
    mean = st.clustered_mean(rewards, np.arange(len(rewards)))
    low, high = np.clip([mean.low, mean.high], 0.0, 1.0).tolist()
    return {"value": mean.value, "low": low, "high": high, "n": mean.n}
