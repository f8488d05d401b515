"""Figures of the whole chain against the goldens beside this file."""

import os
from pathlib import Path

import pytest

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import measures
from tests.goldens import NAMES, differences, figures, golden

# What `make run` prints on the project's own machine: held-out games before and after training.
MADE = {"eval-000000.jsonl": ("0.829", "0.432"), "eval-000056.jsonl": ("0.936", "5.57")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_figures_after_any_change_are_the_goldens(name: str) -> None:
    found = list(differences(golden(name), figures(name)))
    assert not found, "\n".join([f"{len(found)} figures moved; if right: python -m tests.goldens {name}", *found[:20]])


def test_differences_of_changed_figures_name_the_place() -> None:
    was = {"a": [1, 2.0], "b": "x", "c": None}
    assert not list(differences(was, {"a": [1, 2.00001], "b": "x", "c": None}))
    assert list(differences(was, {"a": [2, 2.0], "b": "x", "c": None})) == [".a[0]: 1 became 2"]
    assert list(differences(was, {"a": [1, 2.1], "b": "y", "d": None})) == [
        ".a[1]: 2.0 became 2.1",
        '.b: "x" became "y"',
        ".c is gone",
        ".d is new",
    ]


@pytest.mark.skipif(not os.environ.get("MADE_RUN"), reason="MADE_RUN names no log folder of a finished `make run`")
@pytest.mark.parametrize("file", MADE)
def test_make_run_after_training_has_the_published_figures(file: str) -> None:
    shares = sorted(Path(os.environ["MADE_RUN"]).glob(file.replace(".jsonl", "*.jsonl")))  # one per process
    lines = [line for share in shares for line in read_log(share)]
    assert len(lines) == 400
    reward = sum(line.reward or 0.0 for line in lines) / 400
    questions = sum(float(measures(line)["questions"]) for line in lines) / 400
    assert (f"{reward:.3f}", f"{questions:.3g}") == MADE[file]
