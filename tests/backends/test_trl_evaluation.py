"""Held-out games played during training (`train.eval_every`): training is the same without them, and none is played twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch

from slim_rl.analysis.held_out import cells_of, compare
from slim_rl.analysis.load import load
from slim_rl.backends import Result
from slim_rl.backends.trl import run as local
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import RunStopped
from tests.backends.test_trl import make_config, weights
from tests.backends.test_trl_stop import checkpoints, config_of, partner_calls
from tests.fakes.openai_server import Step, serving


def said(log: Path) -> list[tuple[Any, ...]]:
    return [(d.step, d.id, [turn.text for turn in d.turns], d.reward) for d in read_log(log)]


def evaluations(result: Result) -> dict[str, list[Dialogue]]:
    return {log.stem: list(read_log(log)) for log in sorted(result.log_dir.glob("eval-*.jsonl"))}


def same_weights(one: Result, two: Result) -> bool:
    mine, theirs = weights(one), weights(two)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_training_is_the_same_with_and_without_evaluations(
    folder: Path, whole: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(folder, "between", "train.eval_every=1")
    result = local.train(config)
    assert sorted(said(result.log_dir / "train.jsonl")) == sorted(said(whole.log_dir / "train.jsonl"))
    assert same_weights(result, whole)
    played = evaluations(result)
    assert {name: len(dialogues) for name, dialogues in played.items()} == {f"eval-{step:06}": 4 for step in range(5)}
    assert len({frozenset(dialogue.game_id for dialogue in dialogues) for dialogues in played.values()}) == 1
    for mine, theirs in ((result.before, whole.before), (result.after, whole.after)):
        assert [(d.id, d.reward) for d in mine] == [(d.id, d.reward) for d in theirs]
    lines = [line for line in capsys.readouterr().out.splitlines() if ", held-out: " in line]
    assert [line.partition(", held-out: ")[0] for line in lines] == ["step    1", "step    2", "step    3"]
    reward = batch_metrics(played["eval-000002"])["reward"]
    assert f"reward {reward:.3f}" in lines[1] and max(map(len, lines)) <= 80

    (pair,) = compare(cells_of(load([whole.log_dir, result.log_dir]).frame))
    assert pair["measures"]["reward"]["value"] == 0, "both as they were played last"


def test_policy_that_cannot_play_is_named_before_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local.train(make_config(folder, "cut", "train.steps=1", "limits.turn_tokens=1"))
    assert (
        "the policy cannot play this game: 4 of 4 games ended without a result (4 turn_tokens"
        in capsys.readouterr().err
    )


def test_evaluations_follow_eval_every_and_the_last_is_single(folder: Path) -> None:
    result = local.train(make_config(folder, "every-2", "train.eval_every=2", "train.eval_before=false"))
    assert {name: len(played) for name, played in evaluations(result).items()} == {"eval-000002": 4, "eval-000004": 4}
    card = (result.run_dir / "model" / "README.md").read_text(encoding="utf-8")
    assert not result.before and "| after training | " in card and "before training" not in card.lower()


def test_interrupted_evaluation_resumes_without_repeats(
    folder: Path, whole: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(folder, "interrupted", "train.eval_every=1")
    append, ended = DialogueLog.append, Counter[int | None]()

    def breaks(self: DialogueLog, dialogue: Dialogue) -> None:
        append(self, dialogue)
        ended[dialogue.step] += dialogue.phase == "eval"
        if ended[3] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DialogueLog, "append", breaks)
        with pytest.raises(KeyboardInterrupt):
            local.train(config)
    logs = config.run_dir / "logs"
    early = {log.name: log.read_bytes() for log in logs.glob("eval-*.jsonl")}
    assert early["eval-000003.jsonl"].count(b"\n") == 2

    resumed = local.train(make_config(folder, "interrupted", "train.eval_every=3"))  # from the checkpoint of step 2
    assert same_weights(resumed, whole)
    for name, before in early.items():
        after = (logs / name).read_bytes()
        assert after.startswith(before) and (after == before) == (name != "eval-000003.jsonl")
    for name, dialogues in evaluations(resumed).items():
        assert len({dialogue.id for dialogue in dialogues}) == len(dialogues) == 4, name


def test_evaluation_after_checkpoint_ends_before_next_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(folder, "saved", "train.eval_every=2", "train.steps=3")
    append, order = DialogueLog.append, list[tuple[str, int | None]]()

    def breaks(self: DialogueLog, dialogue: Dialogue) -> None:
        append(self, dialogue)
        order.append((dialogue.phase, dialogue.step))
        if order.count(("eval", 2)) == 1 and not resumed:
            raise KeyboardInterrupt

    monkeypatch.setattr(DialogueLog, "append", breaks)
    resumed: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        local.train(config)
    resumed.append(True)
    order.clear()
    local.train(config)
    assert order == [("eval", 2)] * 3 + [("train", 2)] * 8 + [("eval", 3)] * 4


def test_a_partner_that_stops_in_an_evaluation_costs_no_step(folder: Path) -> None:
    prices = {"gpt-4.1": {"output": 1e6}}
    evaluated = ("train.eval_games=2", "train.eval_every=2", "train.eval_before=false")
    with serving() as server:
        without = config_of(folder, "unevaluated", server, prices=prices)
        expected = local.train(without)
        calls = partner_calls(without)
    with serving() as server:  # 1 US dollar an answer
        server.meets = lambda body: Step(usage={"prompt_tokens": 1000, "completion_tokens": 1})
        settings: dict[str, Any] = {"prices": prices}
        budget = calls[0] + calls[1] + 0.5
        config = config_of(folder, "poor", server, *evaluated, budget_usd=budget, **settings)
        with pytest.raises(RunStopped, match=r"budget_usd.*The 2 steps before it are saved"):
            local.train(config)
        assert checkpoints(config) == ["checkpoint-2"]
        result = local.train(config_of(folder, "poor", server, *evaluated, budget_usd=1e6, **settings))
    assert partner_calls(config) == calls and same_weights(result, expected)
    played = [dialogue.id for dialogue in evaluations(result)["eval-000002"] if not dialogue.failed]
    assert len(set(played)) == len(played) == 2
