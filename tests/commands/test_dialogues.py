"""Dialogues in the formats of others, as files. Their own packages read them in tests/adapters/test_exchange.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.commands import load
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.errors import DataError

ROLES = {"user", "assistant", "system", "tool"}


@pytest.fixture
def log(tmp_path: Path, make_dialogue: Any) -> Path:
    """A game that was played, with its tokens, and one that failed."""
    prompt = [{"role": "system", "content": "The rules."}, {"role": "user", "content": "Your scores."}]
    said = ("[message] What is Ava Li on BLEU?", "[message] It is 70.", "!Hm")
    tokens = {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 5, 6, 7],
        "loss_mask": [1, 1, 0, 0, 1],
        "logprobs": [-0.5, -0.25, 0.0, 0.0, -1.0],
    }
    played = make_dialogue(*said, id="g0/0", prompt=prompt, step=3, policy={"model": "tiny"}, reward=0.5, **tokens)
    played.turns[0].span, played.turns[2].span = (0, 2), (4, 5)
    played.turns[0].thought = "I do not know BLEU."
    ended = {"reward": None, "stop_reason": StopReason.PARTNER_FAILED, "failure": "no answer"}
    with DialogueLog(tmp_path / "log" / "train.jsonl", tokens=True) as writer:
        writer.append(played)
        writer.append(make_dialogue(said[0], id="g1/0", step=3, policy={"model": "tiny"}, prompt=prompt, **ended))
    return tmp_path / "log"


def export(log: Path, form: str, output: Path) -> list[Path]:
    load("lab dialogues")([str(log), "--format", form, "--output", str(output)], standalone_mode=False)
    return sorted(output.iterdir())


def test_a_session_trace_is_a_header_and_a_message_a_line(log: Path, tmp_path: Path) -> None:
    paths = export(log, "traces", tmp_path / "traces")
    assert [path.suffix for path in paths] == [".jsonl"] * 2
    header, *lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert header["type"] == "session" and header["harness"] == "slim_rl" and header["id"] and header["reward"] == 0.5
    assert all(line["type"] == "message" and line["message"]["role"] in ROLES for line in lines)
    said = [(line["message"]["role"], line["message"]["content"]) for line in lines]
    assert said == [
        ("system", "The rules."),
        ("user", "Your scores."),
        ("assistant", "[message] What is Ava Li on BLEU?"),
        ("user", "[message] It is 70."),
        ("assistant", "Hm"),
        ("system", "Write [message] first."),
    ]
    assert lines[2]["message"]["reasoningContent"] == "I do not know BLEU." and lines[2]["message"]["model"] == "tiny"


@pytest.mark.parametrize("form", ["traces", "atif", "inspect"])
def test_what_the_other_seat_opened_with_is_said_once(form: str, tmp_path: Path, make_dialogue: Any) -> None:
    opening = "[message] Hello. Which reviewer?"
    prompt = [{"role": "system", "content": "The rules."}, {"role": "user", "content": f"Your scores.\n\n{opening}"}]
    dialogue = make_dialogue("[message] What is Ava Li on BLEU?", "[message] It is 70.", prompt=prompt, seat=1)
    dialogue.turns.insert(0, Turn(opening, 0, "partner", {"kind": "message"}))
    with DialogueLog(tmp_path / "log" / "train.jsonl") as writer:
        writer.append(dialogue)
    (path,) = export(tmp_path / "log", form, tmp_path / form)
    said = json.loads(path.read_text())["samples"][0]["messages"] if form == "inspect" else path.read_text()
    assert json.dumps(said).count("Which reviewer?") == 1
    assert "It is 70." in json.dumps(said)


def test_every_session_has_its_own_id(log: Path, tmp_path: Path) -> None:
    paths = export(log, "traces", tmp_path / "traces")
    assert len({json.loads(path.read_text().splitlines()[0])["id"] for path in paths}) == 2


def test_a_trajectory_has_the_tokens_that_were_read_and_sampled(log: Path, tmp_path: Path) -> None:
    played = json.loads(export(log, "atif", tmp_path / "atif")[0].read_text())
    first, last = (step["metrics"] for step in played["steps"] if "metrics" in step)
    assert first["prompt_token_ids"] == [1, 2] and first["completion_token_ids"] == [3, 4]
    assert first["logprobs"] == [-0.5, -0.25]
    assert last["prompt_token_ids"] == [1, 2, 3, 4, 5, 6] and last["completion_token_ids"] == [7]


def test_a_log_without_tokens_gives_counts_alone(log: Path, tmp_path: Path) -> None:
    with DialogueLog(tmp_path / "short.jsonl") as writer:
        for dialogue in read_log(log):
            writer.append(dialogue)
    played = json.loads(export(tmp_path / "short.jsonl", "atif", tmp_path / "atif")[0].read_text())
    assert [step["metrics"] for step in played["steps"] if "metrics" in step] == [
        {"completion_tokens": 2},
        {"completion_tokens": 1},
    ]
    assert played["final_metrics"]["total_completion_tokens"] == 3


def test_what_is_there_is_not_replaced(log: Path, tmp_path: Path) -> None:
    export(log, "traces", tmp_path / "out")
    with pytest.raises(DataError, match="not empty"):
        export(log, "atif", tmp_path / "out")


@pytest.mark.parametrize("form", ["traces", "atif", "inspect"])
def test_a_log_that_is_named_twice_is_written_once(form: str, log: Path, tmp_path: Path) -> None:
    once = export(log, form, tmp_path / "once")
    named = [str(log), str(log / "train.jsonl"), str(log / ".." / "log")]
    load("lab dialogues")([*named, "--format", form, "--output", str(tmp_path / "again")], standalone_mode=False)
    assert len(list((tmp_path / "again").iterdir())) == len(once)


def test_the_folder_one_is_in_is_not_replaced(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(DataError, match="is the working folder"):
        export(log, "traces", Path())
    assert Path.cwd().is_dir()
