"""Ctrl-C ends a command with a sentence on how to go on, and the next start goes on from there."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.commands.shell import Done, call


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def interrupted(ready: Path, *words: str) -> Done:
    """What a command prints in which Ctrl-C is pressed once `ready` holds something."""
    over = threading.Event()

    def press() -> None:
        while not over.wait(0.05):
            if ready.exists() and ready.stat().st_size:
                return os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=press).start()
    try:
        return call(*words)
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)


TRAIN = "train={games_per_step: 2, group_size: 2, micro_batch: 4, processes: 1, save_every: 1, eval_games: 2}"
SHORT = ["--set", TRAIN, "--set", "data={num_train: 8, num_eval: 40}"]


def test_interrupted_run_prints_how_to_resume() -> None:
    pytest.importorskip("trl")
    words = ["train", "matching_local", *SHORT, "--set", "train.steps=900"]
    mark = Path("runs", "matching_local", "checkpoints", "checkpoint-2", "trainer_state.json")
    done = interrupted(mark, *words)
    assert done.returncode == 130 and "Traceback" not in done.stderr
    said = "slim-rl: interrupted; the same command resumes from the last checkpoint, or starts again if there is none yet.\n"
    assert done.stderr.endswith(said)
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
    done = interrupted(Path("logs/evaluation/warmstart_shy_free.jsonl"), *words)
    said = "interrupted; the dialogues are in logs/evaluation, and the same command plays the rest.\n"
    assert done.returncode == 130 and done.stderr.endswith(said), done.stderr
