"""What rewards mean: plans made without any dialogue, and people.

The plans are made on the very games of the log (a seeded sample of them, each once), so the lines they give belong to
these boards and not to boards in general.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike

from slim_rl.analysis import statistics as st
from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.errors import DataError, SlimError
from slim_rl.games.matching.instance import UNSEEN_VALUE, GameState
from slim_rl.games.matching.optimum import best_assignment
from slim_rl.games.matching.questions.value import frontier

BOARDS = 1000  # games the plans are made on, at most


def boards(log: Log, seed: int = 0, size: int = BOARDS) -> list[tuple[GameState, int]]:
    """The log's games, each once, with the policy's seat: a seeded sample of at most `size`. Games without a table are left out."""
    rows = log.frame.drop_duplicates("cluster")
    found = []
    for row in rows.sample(min(size, len(rows)), random_state=seed).itertuples():
        try:
            found.append((GameState.from_dict(read_dialogue(log, row).get("game_state") or {}), int(row.seat)))  # type: ignore[arg-type]
        except SlimError:
            continue
    return found


def plans(games: list[tuple[GameState, int]]) -> dict[str, dict[str, Any]]:
    """Mean reward of three plans, as rows of the results' `references`: random, solo, pooled_optimal. Empty without
    games.

    random: the mean over all assignments, n · mean(table) / best. solo: the best assignment of what the policy's seat
    sees, unseen cells at 50. pooled_optimal: the best of what both see together, which is 1 by definition.
    """
    if not games:
        return {}
    random = [game.n * float(np.mean(game.table)) / game.best_assignment_reward for game, _ in games]
    solo = []
    for game, seat in games:
        known = np.where(game.mask(seat), game.table, UNSEEN_VALUE)
        solo.append(game.score(best_assignment(known)[0]) / game.best_assignment_reward)
    return {
        "random": _reference(random, "a random assignment"),
        "solo": _reference(solo, "the best plan by the policy's own table alone"),
        "pooled_optimal": _reference(np.ones(len(games)), "the best plan by both tables, by definition 1"),
    }


def frontier_curves(games: list[tuple[GameState, int]], most: int, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Reward of an ideal and of a random asker after 0, 1, ..., `most` informative questions
    (`questions.value.frontier`).

    Means over the games of the commonest board size, with 95% intervals. Empty without games.
    """
    if not games:
        return {}
    size = Counter(game.n for game, _ in games).most_common(1)[0][0]
    curves: dict[str, dict[str, Any]] = {}
    for strategy in ("greedy", "random"):
        rewards = np.concatenate(
            [
                frontier([game for game, _ in part], most, strategy, seed, seat)
                for seat in (0, 1)
                if (part := [(game, own) for game, own in games if game.n == size and own == seat])
            ]
        )
        points = [st.clustered_mean(column, np.arange(len(column))) for column in rewards.T]
        curves[strategy] = {key: [getattr(point, name) for point in points] for key, name in _CURVE.items()}
        curves[strategy] |= {"boards": len(rewards), "n": size}
    return curves


_CURVE = {"mean": "value", "low": "low", "high": "high"}


def humans(path: Path, games: list[tuple[GameState, int]]) -> dict[str, dict[str, Any]]:
    """Mean reward of the recorded human games in DialOp's file; a line in figures only if `games` are as large as
    theirs.

    Raises:
        DataError: the file cannot be read or holds no scored game.
    """
    rewards = []
    try:
        for line in Path(path).read_bytes().splitlines():
            game = orjson.loads(line)
            rewards.append(game["proposal_reward"] / game["best_assignment_reward"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not DialOp's file of recorded games; give its optimization.jsonl.") from error
    if not rewards:
        raise DataError(f"{path} holds no game; give DialOp's optimization.jsonl.")
    drawn = {game.n for game, _ in games} == {len(game["table"])}
    return {"human": _reference(rewards, "people, in DialOp's recorded 8×8 games", drawn)}


def _reference(rewards: ArrayLike, about: str, drawn: bool = True) -> dict[str, Any]:
    reward = st.clustered_mean(rewards, np.arange(len(np.asarray(rewards))))
    numbers = {"value": reward.value, "low": reward.low, "high": reward.high, "n": reward.n}
    return {"reward": numbers, "about": about, "drawn": drawn}


def reference_lines(
    environment: str, games: list[tuple[Any, int]], human: Path | None = None
) -> dict[str, dict[str, Any]]:
    boards = [(GameState.from_dict(state), seat) for state, seat in games if "table" in state]
    return plans(boards) | (humans(human, boards) if human is not None else {})
