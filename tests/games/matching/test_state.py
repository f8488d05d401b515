"""State of a matching game: what it scores, how it is read from disk, and which states are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slim_rl.environment import Utterance, View
from slim_rl.errors import DataError
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState

REFUSED = [json.loads(line) for line in Path(__file__).with_name("refused_states.jsonl").open(encoding="utf-8")]


def test_state_is_read_from_json_and_nested_arrays(game: GameState) -> None:
    state = game.to_dict()
    assert GameState.from_dict(json.loads(json.dumps(state))) == game and "reviewers" not in state
    own = GameState.from_dict({**state, "reviewers": ["A", "B", "C"], "papers": ["X", "Y", "Z"]})
    assert GameState.from_dict(own.to_dict()) == own and own.roster == Roster(("A", "B", "C"), ("X", "Y", "Z"))
    for key in ("table", "mask1", "mask2"):  # as pandas reads them
        rows = np.empty(3, object)
        rows[:] = [np.array(row) for row in state[key]]
        state[key] = rows
    assert GameState.from_dict(state | {"reviewers": None, "papers": None}) == game


def test_id_follows_the_content(game: GameState) -> None:
    state = game.to_dict()
    assert GameState.from_dict(state).id == GameState.from_dict({**state, "scale1": 9.0}).id == game.id
    assert GameState.from_dict({**state, "mask1": [[1] * 3] * 3}).id != game.id


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: json.dumps(row["change"]))
def test_malformed_states_are_refused_in_a_sentence(game: GameState, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=row["says"]):
        GameState.from_dict({**game.to_dict(), **row["change"]})


def test_a_state_must_be_a_mapping() -> None:
    with pytest.raises(DataError, match="list"):
        GameState.from_dict([])  # type: ignore[arg-type]


def test_words_are_told_apart_by_seat() -> None:
    history = (Utterance(0, "a"), Utterance(1, "b"), Utterance(0, "c", "refused"), Utterance(0, "d"))
    view = View(0, "", "", history, None, seed=0)
    assert (view.sent, view.received) == (["a", "d"], ["b"])
