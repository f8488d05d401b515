"""The dialogue log and metrics of slime's rollouts."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import View
from slim_rl.errors import RunStopped
from slim_rl.games.matching.questions import annotate
from tests.backends.slime_setup import make_args, make_group, play_group, run, serve

from slim_rl.backends.slime import log as metrics  # isort: skip
from slim_rl.rollout import generate, keep_usable_groups, log_eval_rollout, log_rollout, normalize_rewards  # isort: skip

PHASES = {"train": False, "eval": True}


@pytest.fixture(scope="module")
def played(tokenizer: Any, tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Three played games and one that failed, of a step and of an evaluation."""
    folder, found = tmp_path_factory.mktemp("played"), {}
    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, folder)
        dead = make_args(tokenizer_dir, 9, folder, {"slime": {"engine_retry_seconds": 0.05}})
        for phase, evaluation in PHASES.items():
            found[phase] = run(args, play_group(args, make_group(3), evaluation))
            found[phase] += run(dead, play_group(dead, make_group(1, first=3), evaluation))
    return found


@pytest.fixture
def samples(played: dict[str, list[Any]]) -> list[Any]:
    return copy.deepcopy(played["train"])


@pytest.fixture
def held_out(played: dict[str, list[Any]]) -> dict[str, Any]:
    """An evaluation as slime hands it over."""
    return results_of(copy.deepcopy(played["eval"]))


@pytest.fixture
def args(tokenizer_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(metrics, "_begun", False)
    return make_args(tokenizer_dir, 9, tmp_path)


def results_of(samples: list[Any]) -> dict[str, Any]:
    return {"rewards": [sample.reward for sample in samples], "samples": samples}


def logged(folder: Path, phase: str = "train") -> list[Dialogue]:
    return list(read_log(folder / "logs" / f"{phase}.jsonl"))


def test_one_line_a_dialogue_with_its_step_and_tokens(args: Any, samples: list[Any], tmp_path: Path) -> None:
    args.slim_rl["log"] = {"tokens": True}
    assert log_rollout(7, args, samples, {}, 1.0) is False
    lines = logged(tmp_path)
    assert [(line.step, line.phase, line.run) for line in lines] == [(7, "train", "test")] * 4
    assert len({line.id for line in lines}) == 4 and len({line.group for line in lines}) == 1
    assert [line.reward for line in lines] == [*(sample.reward for sample in samples[:3]), None]
    asked = [turn for line in lines[:3] for turn in line.turns if turn.questions]
    assert len(asked) == 9 and all(turn.pairs for turn in asked)
    for line, sample in zip(lines[:3], samples, strict=False):
        assert line.prompt_ids + line.response_ids == sample.tokens
        assert (line.loss_mask, line.logprobs) == (sample.loss_mask, sample.rollout_log_probs)
    assert not lines[3].response_ids, "the sample's one token pads it"


def test_a_run_that_resumes_takes_back_the_steps_it_plays_again(args: Any, samples: Any, tmp_path: Path) -> None:
    for step in (0, 1, 2):
        log_rollout(step, args, samples, {}, 1.0)
    metrics._writers.clear()  # a new process
    log_rollout(1, args, samples[:2], {}, 1.0)
    log_rollout(2, args, samples[:2], {}, 1.0)
    assert [line.step for line in logged(tmp_path)] == [0] * 4 + [1] * 2 + [2] * 2
    assert not logged(tmp_path)[0].response_ids, "the log leaves out tokens unless it is told to"
    args.load_debug_rollout_data = "rollout_{rollout_id}.pt"
    log_rollout(0, args, samples, {}, 1.0)
    assert len(logged(tmp_path)) == 8, "nothing was played"


@pytest.mark.parametrize("save", ["save", None])
def test_log_of_a_second_seed_keeps_the_first_ones(args: Any, samples: Any, tmp_path: Path, save: Any) -> None:
    for seed in (1, 2):
        args.slim_rl |= {"seed": seed, "output_dir": str(tmp_path / "runs")}
        args.save = save and str(tmp_path / "runs" / save)
        metrics._writers.clear()  # a new process
        for sample in samples[:3]:
            sample.metadata["dialogue"]["settings"]["seed"] = seed
        log_rollout(0, args, samples[:3], {}, 1.0)
    assert sorted(line.settings["seed"] for line in read_log(tmp_path / "runs")) == [1] * 3 + [2] * 3


def test_failures_count_in_their_own_metrics_only(samples: list[Any]) -> None:
    dialogues = [Dialogue.from_dict(sample.metadata["dialogue"]) for sample in samples]
    for dialogue in dialogues:
        annotate(dialogue)  # as the log does
    measured = metrics.batch_metrics(dialogues)
    expected = {"reward": pytest.approx(sum(sample.reward for sample in samples[:3]) / 3), "turns_p50": 8.0}
    expected |= {"failed": 0.25, "failure/engine_failed": 1.0, "questions": 3.0, "agreed": 1.0}
    assert {name: measured[name] for name in expected} == expected and "partner_seconds_p95" in measured


def test_an_evaluations_average_is_of_the_games_played(args: Any, held_out: Any, tmp_path: Path) -> None:
    played = held_out["rewards"][:3]
    assert log_eval_rollout(3, args, {"held_out": held_out}, None) is False
    assert held_out["rewards"][:3] == played
    assert sum(held_out["rewards"]) / 4 == pytest.approx(sum(played) / 3)
    assert [line.phase for line in logged(tmp_path, "eval")] == ["eval"] * 4


def test_an_evaluation_has_the_number_of_steps_trained_before_it(
    args: Any, samples: Any, held_out: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slime calls the one before training and the one after the first step by one number."""
    tracked: list[tuple[str, float]] = []
    note = lambda args, found, step_key: tracked.append((step_key, found[step_key]))  # noqa: E731
    monkeypatch.setattr(metrics.logging_utils, "log", note)
    for train in (None, 0, 1):
        if train is not None:
            log_rollout(train, args, samples, {}, 1.0)
        log_eval_rollout(train or 0, args, {"held_out": copy.deepcopy(held_out)}, None)
    lines = logged(tmp_path, "eval")
    assert [line.step for line in lines] == [0] * 4 + [1] * 4 + [2] * 4 and len({line.id for line in lines}) == 12
    steps = [("eval/step", 0), ("rollout/step", 0), ("eval/step", 1), ("rollout/step", 1), ("eval/step", 2)]
    assert tracked == steps, "trackers have the log's numbers"


def test_failures_alone_stop_the_run_once_they_are_logged(
    args: Any, samples: Any, held_out: Any, tmp_path: Path
) -> None:
    with pytest.raises(RunStopped, match="1 of 1 dialogues failed"):
        log_rollout(0, args, samples[3:], {}, 1.0)
    failed = results_of(held_out["samples"][3:])
    with pytest.raises(RunStopped, match="Nothing was measured in held_out: 1 of 1 dialogues failed"):
        log_eval_rollout(0, args, {"held_out": failed}, None)
    assert len(logged(tmp_path)) == len(logged(tmp_path, "eval")) == 1


@pytest.mark.parametrize("reason", [StopReason.BUDGET, StopReason.OUTAGE])
def test_a_rollout_that_the_partners_end_met_is_not_trained_on(
    args: Any, samples: Any, held_out: Any, tmp_path: Path, reason: StopReason
) -> None:
    """One game in four is enough: which ones it met is no accident."""
    for those in (samples, held_out["samples"]):
        those[3].metadata["dialogue"] |= {"stop_reason": reason.value, "failure": "No money left."}
    with pytest.raises(RunStopped, match=r"Training stops: No money left\."):
        log_rollout(0, args, samples, {}, 1.0)
    assert len(logged(tmp_path)) == len(samples), "it is logged all the same"
    with pytest.raises(RunStopped, match="No money left"):
        log_eval_rollout(0, args, {"held_out": held_out}, None)


def test_hooks_can_be_called_as_slime_calls_them() -> None:
    asked = inspect.signature(generate)
    asked.bind("args", "sample", "sampling_params", evaluation=True)
    assert "evaluation" in asked.parameters, "slime looks for the name before it passes it"
    assert inspect.iscoroutinefunction(generate)
    for hook, arguments in [(keep_usable_groups, 2), (normalize_rewards, 2), (log_rollout, 5), (log_eval_rollout, 4)]:
        inspect.signature(hook).bind(*range(arguments))
        assert not inspect.iscoroutinefunction(hook)


class Counting(Partner):
    """A partner that costs money, and never speaks."""

    identity: ClassVar[dict[str, Any]] = {"kind": "counting"}
    kept: ClassVar[list[Path]] = []

    async def act(self, view: View) -> Turn:
        raise PartnerFailure("No money left.", StopReason.BUDGET)

    def keep_spend(self, folder: Path) -> None:
        self.kept.append(folder)


def test_what_a_run_spends_is_kept_beside_its_checkpoints(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer) as server:
        partner = {"kind": f"{__name__}.Counting", "args": {}}
        args = make_args(tokenizer_dir, server.port, tmp_path, {"partner": partner}, save=str(tmp_path / "run"))
        samples = run(args, play_group(args, make_group(1)))
    assert Counting.kept == [tmp_path / "run"]
    with pytest.raises(RunStopped, match="No money left"):
        log_rollout(0, args, samples, {}, 1.0)
