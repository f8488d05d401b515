"""What a seat sees and, by what it was told, knows; what is shown, what counts, and what is refused from disk; and the game for one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slim_rl.environment import Utterance, View
from slim_rl.errors import DataError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.planning import PlanningEnv
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState, best_assignment

STATE = GameState(
    ((60, 99), (30, 50)),
    ((True, False), (False, False)),
    ((False, True), (True, False)),
    1.0,
    1.0,
    129,
    Roster.default(2),
)


def game(state: GameState = STATE, open_book: bool = False) -> MatchingEnv:
    env = MatchingEnv(rules="none", open_book=open_book)
    env.reset(state)
    return env


def test_what_a_seat_was_told_stands_in_its_table() -> None:
    env = game()
    env.step("[message] What is Ava Li on Electra?")
    env.step("[message] 99.")  # a number alone
    assert env.known(0) == [[60, 99], [None, None]]  # not what the partner sees and did not tell
    board = env.board(0)
    assert board is not None and board.cells == (("60", "99"), ("?", "?"))
    assert env.known(1) == [[None, 99], [30, None]]


def test_known_scores_ignore_own_words_and_keep_own_cells() -> None:
    env = game()
    env.step("[message] I have 7 for Daniel Nguyen on Electra.")
    env.step("[message] Ava Li on BLEU: 1.")
    assert env.known(0) == [[60, None], [None, None]]


def test_what_is_refused_and_what_another_game_told_is_not_known() -> None:
    env = game()
    env.step("Ava Li on Electra: 99.")  # without a tag
    env.step("[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen")
    env.step("[reject] I doubt it. Ava Li on Electra: 99.")
    assert env.known(1) == [[None, 99], [30, None]] and env.known(0) == [[60, 99], [None, None]]
    env.reset(STATE)
    assert env.known(0) == [[60, None], [None, None]]


def test_an_open_book_shows_both_tables_from_the_start() -> None:
    env = game(open_book=True)
    assert "Ava Li: BLEU 60, Electra 99\nDaniel Nguyen: BLEU 30, Electra ?" in env.prompt(0)[-1]["content"]
    assert env.known(0) == [[60, 99], [30, None]]


def test_what_is_told_on_another_scale_is_left_out() -> None:
    env = game(replace(STATE, scale2=2.0))
    env.step("[message] What is Ava Li on Electra?")
    env.step("[message] Ava Li on Electra: 198.")
    assert env.known(0)[0][1] is None


def test_cells_are_seen_or_unseen(game: GameState) -> None:
    env = MatchingEnv()
    env.reset(game)
    view = env.get_private_view(0)
    assert view.seen == [(r, p) for r in range(2) for p in range(3)] and view.unseen == [(2, 0), (2, 1), (2, 2)]
    assert view[0, 0] == 225 and view[2, 1] is None
    assert sorted(view.seen + view.unseen) == view.pairs
    assert view.roster.pair((0, 1)) == "Ava Li on Electra"


def test_words_are_told_apart_by_seat() -> None:
    history = (Utterance(0, "a"), Utterance(1, "b"), Utterance(0, "c", "refused"), Utterance(0, "d"))
    view = View(0, "", "", history, None, seed=0)
    assert (view.sent, view.received) == (["a", "d"], ["b"])


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


POOLED = GameState.from_dict(
    {
        "table": [[9, 1, 50], [1, 9, 1], [1, 1, 8]],
        "mask1": [[1, 0, 0], [1, 1, 1], [0, 0, 0]],
        "mask2": [[0, 1, 0], [0, 0, 1], [1, 1, 1]],
        "scale1": 2.0,
        "scale2": 3.0,
        "best_assignment_reward": 60,
    }
)


def dealt(max_errors: int = 3) -> PlanningEnv:
    env = PlanningEnv(max_errors)
    env.reset(POOLED)
    return env


def test_it_shows_what_either_player_sees_in_true_scores() -> None:
    env = dealt()
    lines = env.get_state_description().splitlines()
    assert lines[1] == "Ava Li: BLEU 9, Electra 1, GloVe ?"
    assert lines[2] == "Daniel Nguyen: BLEU 1, Electra 9, GloVe 1"
    assert "partner" not in env.get_prompt_prefix()
    assert env.seats == 1


@pytest.mark.parametrize(("plan", "score"), [((2, 1, 0), 60), ((0, 1, 2), 26)])
def test_a_plan_ends_the_game_with_its_share_of_the_best(plan: tuple[int, ...], score: int) -> None:
    env = dealt()
    _, done, info = env.step(format_proposal(plan, POOLED.roster))
    assert (done, info["end"], info["error"]) == (True, "finished", None)
    assert info["action"]["assignment"] == list(plan)
    assert env.get_normalized_reward() == pytest.approx(score / 60)
    assert env.step("[propose]")[1]
    assert env.get_normalized_reward() == pytest.approx(score / 60)


@pytest.mark.parametrize("text", ["", "[accept]", "[message] Ava Li on BLEU.", "[propose]\nBLEU: Ava Li", "\ud800"])
def test_anything_else_is_refused_until_there_were_too_many(text: str) -> None:
    env = dealt(max_errors=2)
    observation, done, info = env.step(text)
    assert not done
    assert info["action"] is None
    assert info["error"] and observation.startswith("Error:")
    _, done, info = env.step(text)
    assert (done, info["end"]) == (True, "errors")
    assert env.get_normalized_reward() == 0.0
