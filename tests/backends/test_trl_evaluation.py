"""Held-out games played during training (`train.eval_every`): training is the same without them, and none is played twice."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl")
import yaml

from slim_rl.analysis.held_out import cells_of, compare
from slim_rl.analysis.load import load
from slim_rl.backends import Result
from slim_rl.backends.trl import run as local
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.games.matching.partners.scripted import ShyPartner
from tests.backends.trl_setup import make_config, same, trained, weights


def said(run: Result) -> list[tuple[Any, ...]]:
    return sorted((d.step, d.id, [turn.text for turn in d.turns], d.reward) for d in trained(run))


def evaluations(result: Result) -> dict[str, list[Dialogue]]:
    return {log.stem: list(read_log(log)) for log in sorted(result.log_dir.glob("eval-*.jsonl"))}


def test_policy_that_cannot_play_is_named_before_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local.train(make_config(folder, "cut", "train.steps=1", "limits.turn_tokens=1"))
    said = capsys.readouterr().err
    assert "the policy cannot play this game: 4 of 4 games ended without a result (4 turn_tokens" in said


class Noted(ShyPartner):
    """A shy partner that notes the event loops it answers in."""

    loops: ClassVar[list[asyncio.AbstractEventLoop]] = []

    async def act(self, view: Any) -> Turn:
        self.loops.append(asyncio.get_running_loop())
        return await super().act(view)


def test_a_run_has_one_event_loop_its_evaluations_and_a_card(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    changes = ("train.steps=3", "train.eval_every=2", "train.eval_before=false", "train.report_to=[tensorboard]")
    config = make_config(folder, "told", f"partner.kind={__name__}.Noted", *changes)
    result = local.train(config)
    played = evaluations(result)
    assert {name: len(dialogues) for name, dialogues in played.items()} == {"eval-000002": 4, "eval-000003": 4}
    every = [dialogue for dialogues in (trained(result), *played.values()) for dialogue in dialogues]
    assert len(Noted.loops) == sum(turn.role == "partner" for dialogue in every for turn in dialogue.turns)
    assert len(set(map(id, Noted.loops))) == 1

    (events,) = result.run_dir.rglob("events.out.tfevents.*")
    assert events.parent == result.run_dir / "tensorboard"
    read = EventAccumulator(str(events))
    read.Reload()
    told = {name: read.Scalars(name)[-1].value for name in read.Tags()["scalars"]}
    last = batch_metrics([dialogue for dialogue in trained(result) if dialogue.step == 2])
    between = batch_metrics(played["eval-000002"])
    measured = {f"train/dialogue/{name}": value for name, value in last.items()}
    measured |= {f"eval/dialogue/{name}": between[name] for name in ("reward", "questions")}
    assert "train/dialogue/questions" in measured and "train/loss" in told and "train/questions" not in told
    assert {name: told.get(name) for name in measured} == {n: pytest.approx(v, rel=1e-5) for n, v in measured.items()}

    _, front, card = (result.run_dir / "model" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "transformers"
    assert "base_model" not in yaml.safe_load(front)  # a local folder is unknown to a hub
    assert not result.before and "| after training | " in card and "before training" not in card.lower()
    reward = sum(dialogue.reward or 0.0 for dialogue in result.after) / len(result.after)
    assert "# told" in card and config.environment in card and f"| {reward:.3f} " in card


def test_interrupted_evaluation_resumes_without_repeats(
    folder: Path, whole: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice: in the evaluation of a step with a checkpoint, and of one without, which is trained again. Training is as without them."""
    config = make_config(folder, "interrupted", "train.eval_every=1")
    logs, append = config.run_dir / "logs", DialogueLog.append
    order = list[tuple[str, int | None]]()
    until: int | None = None

    def breaks(self: DialogueLog, dialogue: Dialogue) -> None:
        append(self, dialogue)
        order.append((dialogue.phase, dialogue.step))
        if order.count(("eval", until)) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(DialogueLog, "append", breaks)
    early: dict[str, bytes] = {}
    for until in (2, 3):
        order.clear()
        with pytest.raises(KeyboardInterrupt):
            local.train(config)
        early |= {log.name: log.read_bytes() for log in logs.glob("eval-*.jsonl")}
        assert early[f"eval-{until:06}.jsonl"].count(b"\n") == 2
    assert order == [("eval", 2)] * 2 + [("train", 2)] * 8 + [("eval", 3)] * 2, "an evaluation ends first"
    until = None
    resumed = local.train(make_config(folder, "interrupted", "train.eval_every=3"))  # from the checkpoint of step 2
    assert same(weights(resumed.run_dir), weights(whole.run_dir)) and said(resumed) == said(whole)
    for name, before in early.items():
        assert (logs / name).read_bytes().startswith(before) == (name != "eval-000003.jsonl")
    played = evaluations(resumed)
    ids = {name: [dialogue.id for dialogue in dialogues] for name, dialogues in played.items()}
    assert ids.keys() == {f"eval-{step:06}" for step in range(5)}
    assert {(len(each), len(set(each))) for each in ids.values()} == {(4, 4)}
    assert len({frozenset(dialogue.game_id for dialogue in dialogues) for dialogues in played.values()}) == 1
    for mine, theirs in ((resumed.before, whole.before), (resumed.after, whole.after)):
        assert [(d.id, d.reward) for d in mine] == [(d.id, d.reward) for d in theirs]
    lines = [line for line in capsys.readouterr().out.splitlines() if ", held-out: " in line]
    assert [line.partition(", held-out: ")[0] for line in lines] == ["step    1", "step    2", "step    3"]
    reward = batch_metrics(played["eval-000002"])["reward"]
    assert f"reward {reward:.3f}" in lines[1] and max(map(len, lines)) <= 80
    (pair,) = compare(cells_of(load([whole.log_dir, resumed.log_dir]).frame))
    assert pair["measures"]["reward"]["value"] == 0, "both as they were played last"
