"""The board as the report's viewer of dialogues draws it, for a reader who may see everything."""

from __future__ import annotations

from typing import Any

from slim_rl.games.matching.instance import UNSEEN_VALUE, state_of


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
