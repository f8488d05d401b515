"""The notebook keeps a seat's books, and nothing else."""

from __future__ import annotations

from slim_rl.config import load_config
from slim_rl.dialogue.factory import make_environment
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.notebook import NotebookEnv
from slim_rl.games.matching.roster import Roster
from tests.test_config import CONFIGS

STATE = GameState(
    ((60, 99), (30, 50)),
    ((True, False), (False, False)),
    ((False, True), (True, False)),
    1.0,
    1.0,
    129,
    Roster.default(2),
)


def game() -> NotebookEnv:
    env = NotebookEnv(rules="none")
    env.reset(STATE)
    return env


def test_what_a_seat_was_told_stands_in_its_table() -> None:
    env = game()
    env.step("[message] What is Ava Li on Electra?")
    observation, _, _ = env.step("[message] Ava Li on Electra: 99.")
    assert observation.startswith("[message] Ava Li on Electra: 99.\nYour scores:\n")
    assert "Ava Li: BLEU 60, Electra 99" in observation and "Daniel Nguyen: BLEU ?, Electra ?" in observation
    assert "Daniel Nguyen: BLEU 30" not in observation  # what the partner sees and did not tell


def test_what_it_sees_itself_is_not_overwritten_and_its_own_words_teach_it_nothing() -> None:
    env = game()
    env.step("[message] I have 7 for Daniel Nguyen on Electra.")
    observation, _, _ = env.step("[message] Ava Li on BLEU: 1.")
    assert "Ava Li: BLEU 60, Electra ?" in observation and "Daniel Nguyen: BLEU ?, Electra ?" in observation


def test_proposals_errors_and_another_game_are_left_alone() -> None:
    env = game()
    assert "Your scores" not in env.step("nothing")[0]
    assert "Your scores" not in env.step("[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen")[0]
    env.step("[reject] I doubt it. Ava Li on Electra: 99.")
    env.reset(STATE)
    env.step("[message] Hello.")
    assert "Electra 99" not in env.step("[message] Noted.")[0]


def test_local_selfplay_plays_with_it() -> None:
    local = next(path for path in CONFIGS if path.name == "matching_selfplay_local.yaml")
    env = make_environment(load_config(local))
    assert isinstance(env, NotebookEnv) and env.rules == "none" and env.max_turns == 24


def test_an_open_book_shows_both_tables_from_the_first_message_on() -> None:
    env = NotebookEnv(rules="none", open_book=True)
    env.reset(STATE)
    assert "Ava Li: BLEU 60, Electra 99\nDaniel Nguyen: BLEU 30, Electra ?" in env.prompt(0)[-1]["content"]
    env.step("[message] What is Daniel Nguyen on Electra?")
    observation, _, _ = env.step("[message] I have no score for Daniel Nguyen on Electra.")
    assert "Ava Li: BLEU 60, Electra 99\nDaniel Nguyen: BLEU 30, Electra ?" in observation
