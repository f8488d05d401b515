"""Dialogues that no step has logged: a line for each attempt at one, for what was said in it was paid for."""

from __future__ import annotations

from pathlib import Path

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.unlogged import Unlogged
from tests.dialogue.made import MakeDialogue

ASKED, TOLD, SAID = "[message] What is Ava Li on Electra?", "[message] 180.", "[message] Thanks."


def said(path: Path) -> list[list[str]]:
    return [[turn.text for turn in dialogue.turns] for dialogue in read_log(path)]


def test_of_a_dialogue_played_again_the_last_attempt_is_taken_out(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    with Unlogged(tmp_path / "unlogged.lines") as unlogged:
        for words in ([ASKED], [ASKED, TOLD], [SAID]):
            unlogged.append(make_dialogue(*words, id="a"))
        unlogged.append(make_dialogue(SAID, id="b"))
        unlogged.logged({"a"})
        assert said(unlogged.path) == [[ASKED], [ASKED, TOLD], [SAID]]
        unlogged.logged({"a", "b"})
        assert said(unlogged.path) == [[ASKED], [ASKED, TOLD]], "of those before no step knows"


def test_another_process_takes_out_its_own_attempts_alone(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    for words in ([ASKED], [ASKED, TOLD]):
        with Unlogged(tmp_path / "unlogged.lines") as unlogged:
            unlogged.append(make_dialogue(*words, id="a"))
    with Unlogged(tmp_path / "unlogged.lines") as unlogged:
        unlogged.logged({"a"})
        assert said(unlogged.path) == [[ASKED], [ASKED, TOLD]]


def test_a_dialogue_that_goes_on_is_one_attempt(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    with Unlogged(tmp_path / "unlogged.lines") as unlogged:
        unlogged.append(make_dialogue(ASKED, id="a"))
        unlogged.append(make_dialogue(ASKED, TOLD, id="a"), goes_on=True)
        assert said(unlogged.path) == [[ASKED, TOLD]], "the turns that both lines have are told once"
        unlogged.logged({"a"})
        assert unlogged.path.stat().st_size == 0
