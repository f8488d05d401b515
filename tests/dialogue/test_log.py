"""The dialogue log: whole lines, whatever was said and whenever it stopped."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.analysis.load import row_of
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import BaseEnvironment
from slim_rl.errors import DataError, SlimWarning
from slim_rl.jsonl import encode
from slim_rl.measured import Instrument
from tests.made import MakeDialogue

SAID = ("[message] What is Ava Li on Electra?", "[message] 180.")


def write(path: Path, *dialogues: Dialogue, from_step: int | None = None) -> None:
    with DialogueLog(path, from_step=from_step) as log:
        for dialogue in dialogues:
            log.append(dialogue)


def test_a_line_comes_back_as_it_went(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    dialogue = make_dialogue(*SAID, step=3, response_ids=[1, 2], loss_mask=[1, 0], logprobs=[-0.5, 0.0])
    write(tmp_path / "new" / "log.jsonl", dialogue)
    (back,) = read_log(tmp_path / "new")
    assert dialogue.turns[0].questions == ["pair"]  # appending annotates
    assert (back.turns, back.response_ids) == (dialogue.turns, [])
    line = json.loads((tmp_path / "new" / "log.jsonl").read_text(encoding="utf-8"))
    assert line["tokens"] == back.to_dict(tokens=False)["tokens"] == {"prompt": 0, "response": 2, "policy": 1}
    assert "response_ids" not in line
    with DialogueLog(tmp_path / "tokens.jsonl", tokens=True) as log:
        log.append(dialogue)
    assert list(read_log(tmp_path / "tokens.jsonl")) == [dialogue]


@pytest.mark.parametrize(("version", "questions"), [(0, ["pair"]), (None, ["pair"]), ("current", [])])
def test_line_of_another_annotator_is_annotated_anew(
    make_dialogue: MakeDialogue, tmp_path: Path, version: Any, questions: list[str]
) -> None:
    dialogue = make_dialogue(*SAID)
    annotate(dialogue)
    line = dialogue.to_dict(tokens=False)
    line["turns"][0]["questions"] = []
    line["annotator_version"] = dialogue.annotator_version if version == "current" else version
    (tmp_path / "log.jsonl").write_bytes(encode(line) + b"\n")
    assert [back.turns[0].questions for back in read_log(tmp_path)] == [questions]


def test_log_failed_and_unrewarded_dialogues_have_lines(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    kinds = {"failed": None, "lost": 0.0, "won": 1.0}
    write(tmp_path / "log.jsonl", *(make_dialogue(*SAID, id=id, reward=reward) for id, reward in kinds.items()))
    assert {dialogue.id: dialogue.reward for dialogue in read_log(tmp_path)} == kinds


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=30))
def test_any_text_makes_one_line_of_utf8(text: str) -> None:
    line = encode({"text": text, "more": [{"a": (text,)}]})
    read = json.loads(line.decode("utf-8"))["text"]
    assert b"\n" not in line and (read == text or any(0xD800 <= ord(c) <= 0xDFFF for c in text))


def test_lines_are_json_whatever_they_hold() -> None:
    assert encode({"a": "\ud83d", "b": [math.nan], 1: 2}) == b'{"a":"\xef\xbf\xbd","b":[null],"1":2}'
    assert encode({"plan": {1: "a", 2: ["\ud800"]}}) == b'{"plan":{"1":"a","2":["\xef\xbf\xbd"]}}'


class Sets(BaseEnvironment):
    instrument = f"{__name__}.Odd"


class Odd(Instrument):
    def annotate(self, dialogue: Dialogue) -> None:
        dialogue.columns["board"] = 3
        for turn in dialogue.turns:
            turn.questions, turn.pairs = ["pair"], {("Ava", 1)}  # type: ignore[assignment]


class Loose(BaseEnvironment):
    instrument = f"{__name__}.Counted"


class Counted(Instrument):
    def annotate(self, dialogue: Dialogue) -> None:
        for turn in dialogue.turns:
            turn.pairs, turn.answered, turn.seeking = [[0, 1]], 1, np.bool_(True)  # type: ignore[list-item, assignment]


def test_log_omits_labels_that_are_not_json(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    dialogue = make_dialogue("[message] Hi.")
    dialogue.environment, dialogue.annotator_version = f"{__name__}.Sets", None
    with DialogueLog(tmp_path / "log.jsonl") as log, pytest.warns(SlimWarning, match="not annotated; .*set"):
        log.append(dialogue)
    line = json.loads((tmp_path / "log.jsonl").read_bytes())
    assert line["columns"] == {} and line["annotator_version"] is None
    assert {turn["questions"] for turn in line["turns"]} == {None}
    assert math.isnan(row_of(dialogue)["questions"]), "not measured, which is not none"


def test_annotations_are_those_that_the_log_gives_back(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    """Numbers of numpy, 1 for true and lists for pairs: training and the log's reader count alike."""
    dialogue = make_dialogue("[message] Hi.", environment=f"{__name__}.Loose", annotator_version=None)
    write(tmp_path / "log.jsonl", dialogue)
    assert dialogue.turns == next(read_log(tmp_path)).turns
    assert (dialogue.turns[0].pairs, dialogue.turns[0].answered) == ([(0, 1)], True)


def test_what_a_planner_knows_is_not_measured(make_dialogue: MakeDialogue) -> None:
    """It reads both tables, and the value of questions counts on one."""
    dialogue = make_dialogue("[message] Hi.", environment="slim_rl.games.matching.planning.PlanningEnv")
    annotate(dialogue)
    assert dialogue.annotator_version and dialogue.turns[0].best_known is dialogue.turns[0].unknown is None


def test_an_action_that_is_no_json_is_said_in_a_sentence(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    dialogue = make_dialogue("[message] Hi.")
    dialogue.turns[0].action = {"cells": {1, 2}}
    with pytest.raises(DataError, match=r"cannot be logged \(.*set.*\): an action or state of .* is not JSON"):
        write(tmp_path / "log.jsonl", dialogue)


def test_a_torn_last_line_is_left_out_then_cut_off(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, make_dialogue(*SAID, id="a"), make_dialogue(*SAID, id="b"))
    os.truncate(path, path.stat().st_size - 40)
    with pytest.warns(UserWarning, match="line 2: left out, since it is incomplete"):
        assert [d.id for d in read_log(path)] == ["a"]
    with pytest.warns(UserWarning, match="incomplete"), DialogueLog(path) as log:
        log.append(make_dialogue(*SAID, id="c"))
    assert [d.id for d in read_log(path)] == ["a", "c"]


def test_a_whole_last_line_without_its_newline_is_kept(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, make_dialogue(*SAID))
    whole = path.read_bytes()
    path.write_bytes(whole.rstrip(b"\n"))
    with DialogueLog(path) as log:
        log.append(make_dialogue(*SAID))
    assert path.read_bytes() == whole * 2


NOT_ITS_LINE = "not a dialogue's line"


NO_LINES: list[tuple[bytes | dict[str, Any], str]] = [
    (b'{"id": "b", \n', "not valid JSON"),
    *((line, NOT_ITS_LINE) for line in (b'{"loss": 1.0}\n', b"[1]\n", b'{"id": 1, "game_id": 2, "turns": [3]}\n')),
    ({"format": 99}, "format=99, but this slim_rl reads formats 3 to 4"),
    ({"id": []}, rf"{NOT_ITS_LINE} \(its id is"),
    ({"seat": 5}, rf"{NOT_ITS_LINE} \(its seat is 5"),
    ({"partner": None}, rf"{NOT_ITS_LINE} \(its partner is None"),
    ({"reward": [1]}, rf"{NOT_ITS_LINE} \(its reward is"),
    ({"turns": [{"seat": 0, "role": "policy", "text": None}]}, rf"{NOT_ITS_LINE} \(its turns.0.text is None"),
]


@pytest.mark.parametrize(("line", "says"), NO_LINES)
def test_line_that_is_no_dialogues_is_named(make_dialogue: MakeDialogue, tmp_path: Path, line: Any, says: str) -> None:
    path = tmp_path / "log.jsonl"
    whole = [encode(make_dialogue(*SAID, id=name).to_dict(tokens=False)) + b"\n" for name in "ac"]
    other = line if isinstance(line, bytes) else encode(make_dialogue(*SAID).to_dict(tokens=False) | line) + b"\n"
    path.write_bytes(whole[0] + other + whole[1])
    with pytest.raises(DataError, match=rf"log\.jsonl, line 2: {says}"):
        list(read_log(path))


def test_nothing_to_read_or_write_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no dialogue log"):
        list(read_log(tmp_path / "absent"))
    with pytest.raises(DataError, match=r"no \*\.jsonl"):
        list(read_log(tmp_path))
    (tmp_path / "empty.jsonl").touch()
    assert list(read_log(tmp_path)) == []
    with pytest.raises(DataError, match="Cannot write"):
        DialogueLog(tmp_path / "empty.jsonl" / "log.jsonl")


def test_log_resume_drops_lines_of_repeated_steps(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    made = [make_dialogue(*SAID, id=f"d{step}", step=step) for step in range(4)]
    write(path, *made, *(make_dialogue(*SAID, id=f"e{step}", step=step, phase="eval") for step in (2, 3)))
    write(path, make_dialogue(*SAID, id="d2 again", step=2), from_step=2)
    assert [d.id for d in read_log(path)] == ["d0", "d1", "e2", "d2 again"]
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".lock"} == {"provenance.json", "train.jsonl"}


def test_of_repeated_lines_the_last_counts(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    made = (make_dialogue(*SAID, step=step, reward=reward) for step, reward in ((1, 0.2), (2, 1.0), (1, 0.9)))
    write(tmp_path / "log.jsonl", *made)
    assert [(d.step, d.reward) for d in read_log(tmp_path)] == [(2, 1.0), (1, 0.9)]


def test_a_log_that_grows_while_it_is_read_is_read_as_it_was(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    with DialogueLog(tmp_path / "log.jsonl") as log:
        for name in "ab":
            log.append(make_dialogue(*SAID, id=name))
        found = read_log(tmp_path)
        first = next(found)
        log.append(make_dialogue(*SAID, id="c"))
        assert [first.id, *(dialogue.id for dialogue in found)] == ["a", "b"]
