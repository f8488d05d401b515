"""Exported dialogues, read by the packages of their formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.test_dialogues import export, log

__all__ = ["log"]  # a fixture


def test_atif_takes_a_trajectory(log: Path, tmp_path: Path) -> None:
    atif = pytest.importorskip("atif", reason="atif is not installed: pip install slim-rl[atif]")
    played, failed = (
        atif.Trajectory.model_validate(json.loads(path.read_text())) for path in export(log, "atif", tmp_path / "atif")
    )
    assert [step.source for step in played.steps] == ["system", "user", "agent", "user", "agent"]
    asked, refused = played.steps[2], played.steps[4]
    assert asked.metrics.completion_token_ids == [3, 4] and asked.metrics.logprobs == [-0.5, -0.25]
    assert asked.reasoning_content == "I do not know BLEU."
    assert refused.observation.results[0].content == "Write [message] first."
    assert failed.final_metrics.extra["failure"] == "no answer"


def test_inspect_reads_an_evaluation_log(log: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed: pip install slim-rl[inspect]")
    export(log, "inspect", tmp_path / "inspect")
    (listed,) = reader.list_eval_logs(str(tmp_path / "inspect"))  # what `inspect view` shows
    read = reader.read_eval_log(listed)
    assert read.status == "success" and read.eval.model == "tiny"
    played, failed = read.samples
    assert played.scores["reward"].value == 0.5 and failed.scores is None
    assert failed.error.message == "no answer"
    assert [message.role for message in played.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",  # inspect view shows all system messages at the top
    ]
    assert read.samples[0].messages[-1].content == "Refused: Write [message] first."
    assert played.messages[2].content[0].reasoning == "I do not know BLEU."
    assert read.results.scores[0].metrics["mean"].value == 0.5
    assert read.results.total_samples == 2 and read.results.completed_samples == 1
