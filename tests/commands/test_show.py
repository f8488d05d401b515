"""Dialogues of a log in the terminal."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slim_rl.analysis.load import load
from slim_rl.commands.show import choose, command, show
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError


@pytest.fixture
def log(tmp_path: Path, make_dialogue: Any) -> Path:
    with DialogueLog(tmp_path / "train.jsonl") as writer:
        for number, reward in enumerate((0.5, 0.9, 0.1)):
            said = (f"[message] What is Ava Li on BLEU, {number}?", "![nonsense]")
            writer.append(make_dialogue(*said, id=f"d{number}", reward=reward, step=number))
    return tmp_path / "train.jsonl"


def steps(log: Path, *wanted: Any) -> list[float]:
    return choose(load([log]).frame, *wanted)["step"].tolist()


def test_the_last_ones_or_those_asked_for(log: Path) -> None:
    assert steps(log, 2) == [1, 2]
    assert steps(log, 9, "reward > 0.3") == [0, 1]
    assert steps(log, 3, "reward > 2") == []


WRONG = """
rewrad > 1 => rewrad.*Choose from .*reward
reward > => --where reward >
reward => --where reward
step => --where step
1 > 0 => --where 1 > 0
"""


@pytest.mark.parametrize("line", WRONG.split("\n")[1:-1])
def test_what_cannot_be_asked_for_is_a_sentence(log: Path, line: str) -> None:
    """Each line: condition => what the sentence says."""
    wanted, _, says = line.partition(" => ")
    with pytest.raises(ConfigError, match=says):
        steps(log, 3, wanted)


def test_a_dialogue_is_shown_whole_and_literally(log: Path, make_dialogue: Any) -> None:
    screen = io.StringIO()
    said = ("[message] [bold]What?", "!x")
    dialogue = make_dialogue(*said, id="eval/g/0", reward=0.25, stop_reason=StopReason.MAX_TURNS)
    dialogue.turns[0].thought = "a \x1b[2J \u202eplan\u2066"
    dialogue.turns[0].questions = ["pair\u202e"]
    dialogue.prompt = [{"role": "user", "content": "Your scores: 1"}]
    show(Console(file=screen, width=100), dialogue)
    text = screen.getvalue()
    ended = "max_turns, reward 0.250"
    for part in ("eval/g/0", "Your scores: 1", "policy> [message] [bold]What?", "refused: Begin", ended):
        assert part in text
    assert "plan" in text and not set("\x1b\u202e\u2066") & set(text)


def test_the_command_prints_and_counts(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command([log], None, num=1, where="")
    out = capsys.readouterr().out
    assert "· d2 " in out and "· d1 " not in out and "refused: Begin" in out and "1 of 3 dialogues" in out
