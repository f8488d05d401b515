"""What a seat sees and, by what it was told, knows."""

from __future__ import annotations

from dataclasses import replace

from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState

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
