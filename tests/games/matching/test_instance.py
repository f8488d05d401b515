"""The game state: what is shown, what counts, and what is refused from disk."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from slim_rl.errors import DataError
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState, best_assignment


def test_displayed_is_scaled_and_cut(game: GameState) -> None:
    assert game.displayed(0) == ((225, 25, 50), (75, 225, 100), (None, None, None))
    odd = GameState.from_dict({**game.to_dict(), "scale1": 1.999})
    assert odd.displayed(0)[0] == (179, 19, 39)


def test_scores(game: GameState) -> None:
    assert game.score((0, 1, 2)) == 270
    assert game.score((1, 0, 2)) == 130
    assert best_assignment(game.table) == ((0, 1, 2), 270)
    assert game.best() == (0, 1, 2)


def test_survives_json(game: GameState) -> None:
    assert GameState.from_dict(json.loads(json.dumps(game.to_dict()))) == game
    assert "reviewers" not in game.to_dict()
    own = GameState.from_dict({**game.to_dict(), "reviewers": ["A", "B", "C"], "papers": ["X", "Y", "Z"]})
    assert GameState.from_dict(own.to_dict()) == own
    assert own.roster == Roster(("A", "B", "C"), ("X", "Y", "Z"))


def test_reads_nested_arrays(game: GameState) -> None:
    state = game.to_dict()
    for key in ("table", "mask1", "mask2"):
        rows = np.empty(3, object)
        rows[:] = [np.array(row) for row in state[key]]
        state[key] = rows
    assert GameState.from_dict(state | {"reviewers": None, "papers": None}) == game


def test_id_follows_the_content(game: GameState) -> None:
    state = game.to_dict()
    assert GameState.from_dict(state).id == game.id
    assert GameState.from_dict({**state, "scale1": 9.0}).id == game.id
    assert GameState.from_dict({**state, "mask1": [[1] * 3] * 3}).id != game.id


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"table": None}, "has no table"),
        ({"table": [[1, 2], [3]]}, "table"),
        ({"table": [[1.5, 2], [3, 4]]}, "whole numbers"),
        ({"table": "x"}, "table"),
        ({"mask1": [[1, 0], [0, 1]]}, "mask1"),
        ({"mask2": [[2] * 3] * 3}, "mask2"),
        ({"scale1": "big"}, "scale1"),
        ({"scale2": 0}, "scale2"),
        ({"best_assignment_reward": 271}, "optimum is 270"),
        ({"reviewers": ["A", "B"], "papers": ["X", "Y", "Z"]}, "name its 3 reviewers"),
        ({"reviewers": ["A", "A", "B"], "papers": ["X", "Y", "Z"]}, "'A'"),
    ],
)
def test_malformed_states_are_refused_in_a_sentence(game: GameState, change: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        GameState.from_dict({**game.to_dict(), **change})


def test_a_state_must_be_a_mapping() -> None:
    with pytest.raises(DataError, match="list"):
        GameState.from_dict([])  # type: ignore[arg-type]
