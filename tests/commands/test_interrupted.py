"""Ctrl-C ends a command with a sentence on how to go on, and the next start goes on from there."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.commands.shell import call, forked


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def interrupted(ready: Path, *words: str) -> tuple[int | None, list[str]]:
    """The exit code and last words of a command that Ctrl-C is pressed in once `ready` holds something."""
    child = forked(Path("out"), *words)
    deadline = time.monotonic() + 180
    while not (ready.exists() and ready.stat().st_size) and child.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert child.pid
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    return child.exitcode, Path("out").read_text().replace("\r", "\n").splitlines()


TRAIN = "train={games_per_step: 2, group_size: 2, micro_batch: 4, processes: 1, save_every: 1, eval_games: 2}"
SHORT = ["--set", TRAIN, "--set", "data={num_train: 8, num_eval: 40}"]


def test_interrupted_run_prints_how_to_resume() -> None:
    pytest.importorskip("trl")
    words = ["train", "matching_local", *SHORT, "--set", "train.steps=900"]
    mark = Path("runs", "matching_local", "checkpoints", "checkpoint-2", "trainer_state.json")
    code, said = interrupted(mark, *words)
    assert code == 130 and "Traceback" not in "\n".join(said)
    assert any(line.endswith("slim-rl: interrupted; the same command resumes from the last checkpoint, or starts again if "
                             "there is none yet.") for line in said)  # fmt: skip
    number = max(int(whole.parent.name.rpartition("-")[2]) for whole in mark.parents[1].glob("*/trainer_state.json"))
    again = call(*words[:-1], f"train.steps={number + 1}")
    assert again.returncode == 0, again.stderr
    (said_then,) = (line for line in again.stderr.splitlines() if "resumes from step" in line)
    assert f"resumes from step {number} of {number + 1}, its last checkpoint in runs/matching_local" in said_then
    steps = [json.loads(line)["step"] for line in (mark.parents[2] / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(number + 1))


def test_an_interrupted_evaluation_says_how_to_go_on() -> None:
    pytest.importorskip("transformers")
    words = ["evaluate", "matching_local", *SHORT, "--checkpoint", "data/warmstart", "--games", "40"]
    words += ["--num-trials", "40", "--concurrency", "8"]  # so that the first dialogue is soon over
    code, said = interrupted(Path("logs/evaluation/warmstart_shy_free.jsonl"), *words)
    assert code == 130
    assert any(line.endswith("interrupted; the dialogues are in logs/evaluation, and the same command plays the rest.")
               for line in said)  # fmt: skip
