"""What rewards of the matching game mean: plans made without any dialogue, ideal askers, and people. One reward a game each.

The plans are made on the games that are given, so the lines they give belong to these boards and not to boards in general.
Where games are to be given, each is (game state as on disk, the policy's seat); states of other games are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl import jsonl
from slim_rl.errors import DataError
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.questions.value import Knowledge, Strategy, frontier

Games = Sequence[tuple[Any, int]]


def references(games: Games) -> dict[str, dict[str, Any]]:
    """Three plans: random, solo and pooled_optimal. Empty without games.

    random: the mean over all assignments, n · mean(table) / best. solo: the best assignment of what the policy's seat
    sees, unseen cells at 50; where several are best, their mean. pooled_optimal: the best of what both see together.
    """
    played = list(_read(games))
    if not played:
        return {}
    random = [game.n * float(np.mean(game.table)) / game.best_assignment_reward for game, _ in played]
    return {
        "random": _line("a random assignment", random),
        "solo": _line(
            "the best plan by the policy's own table alone", [Knowledge(*one).best_known() for one in played]
        ),
        "pooled_optimal": _line("the best plan by both tables, which scores 1", [1.0] * len(played)),
    }


def people(path: Path, games: Games = ()) -> dict[str, dict[str, Any]]:
    """The recorded human games in DialOp's file; drawn in figures only if `games` are as large as theirs.

    Raises:
        DataError: the file cannot be read or holds no scored game.
    """
    rewards = []
    try:
        for _, game in jsonl.read(path):
            rewards.append(game["proposal_reward"] / game["best_assignment_reward"])
    except (DataError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not DialOp's file of recorded games; give its optimization.jsonl.") from error
    if not rewards:
        raise DataError(f"{path} holds no game; give DialOp's optimization.jsonl.")
    same_size = {state.n for state, _ in _read(games)} == {len(game["table"])}
    return {"human": _line("people, in DialOp's recorded 8×8 games", rewards, same_size)}


def frontier_curves(games: Games, most: int, seed: int = 0) -> dict[str, Any]:
    """Rewards of an ideal ("greedy") and of a random asker after 0, 1, ..., `most` informative questions: (games, most + 1).

    Of the games of the commonest board size. Empty without games.
    """
    played = list(_read(games))
    if not played:
        return {}
    size = Counter(game.n for game, _ in played).most_common(1)[0][0]
    by_seat = [[game for game, own in played if game.n == size and own == seat] for seat in (0, 1)]
    strategies: tuple[Strategy, ...] = ("greedy", "random")
    return {
        strategy: np.concatenate(
            [frontier(part, most, strategy, seed, seat) for seat, part in enumerate(by_seat) if part]
        )
        for strategy in strategies
    }


def _line(about: str, rewards: Sequence[float], drawn: bool = True) -> dict[str, Any]:
    return {"about": about, "rewards": rewards, "drawn": drawn}


def _read(games: Games) -> Iterator[tuple[GameState, int]]:
    for state, seat in games:
        try:
            yield (state if isinstance(state, GameState) else GameState.from_dict(state)), seat
        except DataError:
            continue
