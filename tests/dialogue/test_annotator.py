"""Dialogues annotated in another process: the same annotations, whatever happens to it."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from slim_rl.dialogue.annotator import Annotator
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.env import MatchingEnv
from tests.dialogue.made import MakeDialogue
from tests.paths import ROOT

SAID = ("[message] What is Ava Li on Electra? odd \ud83d", "[message] 180.", "[message] And who is best on BLEU?", "!x")


def test_the_same_annotations_as_here(make_dialogue: MakeDialogue) -> None:
    here = [make_dialogue(*SAID, id=str(number)) for number in range(20)]
    there = copy.deepcopy(here)
    for dialogue in here:
        annotate(dialogue)
    with closing(Annotator(2)) as annotator:
        for future in [annotator.submit(dialogue) for dialogue in there]:
            future.result()
    assert there == here
    assert there[0].turns[0].pairs == [(0, 1)] and there[0].turns[0].question_value is not None


def test_the_log_writes_what_is_annotated_already_as_it_is(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    dialogue = make_dialogue(*SAID[1:])
    with closing(Annotator(1)) as annotator:
        annotator.submit(dialogue).result()
    dialogue.turns[0].questions = ["as it came"]
    with DialogueLog(tmp_path / "log.jsonl") as log:
        log.append(dialogue)
    (back,) = read_log(tmp_path)
    assert back.turns == dialogue.turns and back.instrument == MatchingEnv.instrument


def test_a_process_that_dies_costs_no_annotation(make_dialogue: MakeDialogue) -> None:
    first, second, third = (make_dialogue(*SAID) for _ in range(3))
    with closing(Annotator(1)) as annotator:
        annotator.submit(first).result()
        (process,) = annotator._started
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        annotator.submit(second).result()
        annotator.submit(third).result()
    assert first.turns == second.turns == third.turns


def test_a_game_that_annotates_badly_or_prints_spoils_nothing(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    (tmp_path / "odd_games.py").write_text(
        "from slim_rl.measured import MeasuredEnvironment\n"
        "class Loud(MeasuredEnvironment):\n"
        "    @classmethod\n"
        "    def annotate(cls, dialogue):\n"
        "        print('hello')\n"
        "        if dialogue.id == 'bad': raise RuntimeError('no')\n"
        "        for turn in dialogue.turns: turn.questions, turn.seeking = ['own'], True\n"
        "        dialogue.columns['loud'] = 3\n"
    )
    code = (
        "import json, sys, odd_games\n"
        "from contextlib import closing\n"
        "from slim_rl.dialogue.annotator import Annotator\n"
        "from slim_rl.dialogue.record import Dialogue, Turn\n"
        "made = [Dialogue(id, 'g', 0, 0, {}, {}, {}, environment='odd_games.Loud', turns=[Turn(0, 'policy', 'x')])\n"
        "        for id in ('good', 'bad', 'fine')]\n"
        "with closing(Annotator(1)) as annotator:\n"
        "    for dialogue in made: annotator.submit(dialogue).result()\n"
        "print(json.dumps([[dialogue.turns[0].questions, dialogue.columns] for dialogue in made]))\n"
    )
    script = tmp_path / "script.py"  # without a guard on its main: it is not run again in the other process
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == '[[["own"], {"loud": 3}], [null, {}], [["own"], {"loud": 3}]]'


def test_its_processes_end_with_the_program_even_if_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from slim_rl.dialogue.annotator import Annotator\n"
        "from slim_rl.dialogue.record import Dialogue\n"
        "annotator = Annotator(1)\n"
        "annotator.submit(Dialogue('d', 'g', 0, 0, {}, {}, {})).result()\n"
        "print(annotator._started[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    child = Path(f"/proc/{int(done.stdout)}")
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc")
    for _ in range(200):
        if not child.exists() or "Z" in (child / "stat").read_text().rpartition(")")[2].split()[0]:
            return
        time.sleep(0.05)
    pytest.fail("it outlived the program")


def test_a_dialogue_of_an_unknown_game_is_kept(make_dialogue: MakeDialogue) -> None:
    dialogue: Dialogue = make_dialogue(*SAID, environment="nowhere_at_all.Game")
    with closing(Annotator(1)) as annotator:
        annotator.submit(dialogue).result()
    assert [turn.questions for turn in dialogue.turns] == [None] * 4
