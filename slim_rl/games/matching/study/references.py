"""Reference rewards of the matching game: plans without dialogue, ideal askers, and people; and its board.

The plans are made on the given games, so their rewards belong to these boards and not to boards in general. Games are given as (game
state as on disk, the policy's seat); states of other games are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl import jsonl
from slim_rl.errors import DataError
from slim_rl.games.matching.questions.value import Floats, Knowledge, Strategy, frontier
from slim_rl.games.matching.state import UNSEEN_VALUE, GameState, state_of

Games = Sequence[tuple[Any, int]]


def references(games: Games) -> dict[str, dict[str, Any]]:
    """Returns the rewards of three plans: random, solo and pooled_optimal. Empty without games.

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
    """Returns the rewards of the recorded human games, for figures only if `games` are as large as theirs.

    Raises:
        DataError: the file cannot be read or holds no scored game.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}; give DialOp's optimization.jsonl.")
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


def frontiers(games: Games, most: int, seed: int = 0) -> Mapping[str, tuple[Floats, Floats]]:
    """Returns the rewards of an ideal ("greedy") and of a random asker. Empty without games or for another game."""
    states, seats = [list(part) for part in zip(*_read(games), strict=True)] or ([], [])
    strategies: tuple[Strategy, ...] = ("greedy", "random")
    return {name: frontier(states, seats, most, name, seed) for name in strategies} if states else {}


def _line(about: str, rewards: Sequence[float], drawn: bool = True) -> dict[str, Any]:
    return {"about": about, "rewards": rewards, "drawn": drawn}


def _read(games: Games) -> Iterator[tuple[GameState, int]]:
    for state, seat in games:
        game = state if isinstance(state, GameState) else state_of(state)
        if game is not None:
            yield game, seat


def viewer_board(game_state: Any, seat: int) -> dict[str, Any] | None:
    """Returns the board of a game state as on disk, nothing hidden; None if it is another game's.

    Keys:
        rows, columns: [short name, full name] of each; row, column: what one is called.
        truth: the scores that count, truth[row][column].
        shown: what `seat` and what the other seat are shown, None where unseen; scales: by which factors.
        best, score: a best plan, best[row] = column, and its score.
        note: what else a reader needs to know.
    """
    game = state_of(game_state)
    if game is None:
        return None
    seats = (seat, 1 - seat)
    roster = game.roster
    return {
        "rows": [list(names) for names in zip(roster.first_names, roster.reviewers, strict=True)],
        "columns": [list(names) for names in zip(roster.short_papers, roster.papers, strict=True)],
        "row": "reviewer",
        "column": "paper",
        "truth": game.table,
        "shown": [game.displayed(each) for each in seats],
        "scales": [game.scale(each) for each in seats],
        "best": game.best(),
        "score": game.best_assignment_reward,
        "note": f"a cell that neither player sees counts as {UNSEEN_VALUE}",
    }
