"""The dialogue log and metrics of slime's rollouts."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl.backends.slime import RECORD
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.environment import View
from slim_rl.errors import RunStopped, SlimError
from slim_rl.games.matching.questions import annotate
from tests.backends.slime_setup import make_args, make_group, run, sampling_params, serve

from slim_rl.backends.slime import log as metrics  # isort: skip
from slim_rl.rollout import generate, keep_usable_groups, log_eval_rollout, log_rollout, normalize_rewards  # isort: skip


async def play(args: Any, group: list[Any], evaluation: bool = False) -> list[Any]:
    return [await generate(args, sample, sampling_params(args), evaluation=evaluation) for sample in group]


def play_some(tokenizer: Any, tokenizer_dir: Path, tmp_path: Path, evaluation: bool = False, **config: Any) -> Any:
    """Three played games and one that failed."""
    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, config)
        samples = run(args, play(args, make_group(3), evaluation))
    dead = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.05}})
    samples += run(dead, play(dead, make_group(1, first=3), evaluation))
    return args, samples


def test_one_line_a_dialogue_with_its_step(tokenizer, tokenizer_dir, tmp_path) -> None:
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path)
    assert log_rollout(7, args, samples, {}, 1.0) is False
    lines = list(read_log(tmp_path / "logs" / "train.jsonl"))
    assert [(line.step, line.phase, line.run) for line in lines] == [(7, "train", "test")] * 4
    assert len({line.id for line in lines}) == 4
    assert len({line.group for line in lines}) == 1
    assert [line.reward for line in lines] == [*(sample.reward for sample in samples[:3]), None]
    asked = [turn for line in lines[:3] for turn in line.turns if turn.questions]
    assert len(asked) == 9
    assert all(turn.pairs for turn in asked)
    assert not lines[0].response_ids


def test_a_log_with_tokens_holds_what_was_trained_on(tokenizer, tokenizer_dir, tmp_path) -> None:
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path, log={"tokens": True})
    log_rollout(0, args, samples, {}, 1.0)
    *played, failed = read_log(tmp_path / "logs" / "train.jsonl")
    for line, sample in zip(played, samples, strict=False):
        assert line.prompt_ids + line.response_ids == sample.tokens
        assert (line.loss_mask, line.logprobs) == (sample.loss_mask, sample.rollout_log_probs)
    assert not failed.response_ids, "the sample's one token pads it"


def test_a_run_that_resumes_takes_back_the_steps_it_plays_again(tokenizer, tokenizer_dir, tmp_path) -> None:
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path)
    args.save = str(tmp_path)
    for step in (0, 1, 2):
        log_rollout(step, args, samples, {}, 1.0)
    metrics._writers.clear()  # a new process
    log_rollout(1, args, samples[:2], {}, 1.0)
    log_rollout(2, args, samples[:2], {}, 1.0)
    steps = [line.step for line in read_log(tmp_path / "logs" / "train.jsonl")]
    assert steps == [0] * 4 + [1] * 2 + [2] * 2
    args.load_debug_rollout_data = "rollout_{rollout_id}.pt"
    log_rollout(0, args, samples, {}, 1.0)
    assert len(list(read_log(tmp_path / "logs" / "train.jsonl"))) == 8, "nothing was played"


@pytest.mark.parametrize("save", ["save", None])
def test_log_of_a_second_seed_keeps_the_first_ones(tokenizer, tokenizer_dir, tmp_path, save) -> None:
    for seed in (1, 2):
        own = {"seed": seed, "output_dir": str(tmp_path / "runs")}
        args, samples = play_some(tokenizer, tokenizer_dir, tmp_path, **own)
        args.save = save and str(tmp_path / "runs" / save)
        metrics._writers.clear()  # a new process
        log_rollout(0, args, samples[:3], {}, 1.0)
    assert sorted(line.settings["seed"] for line in read_log(tmp_path / "runs")) == [1] * 3 + [2] * 3


def test_failures_count_in_their_own_metrics_only(tokenizer, tokenizer_dir, tmp_path) -> None:
    _, samples = play_some(tokenizer, tokenizer_dir, tmp_path)
    dialogues = [metrics.Dialogue.from_dict(sample.metadata["dialogue"]) for sample in samples]
    for dialogue in dialogues:
        annotate(dialogue)  # as the log does
    measured = metrics.batch_metrics(dialogues)
    assert measured["reward"] == pytest.approx(sum(sample.reward for sample in samples[:3]) / 3)
    assert (measured["failed"], measured["failure/engine_failed"]) == (0.25, 1.0)
    assert measured["questions"] == 3.0
    assert measured["agreed"] == 1.0
    assert measured["turns_p50"] == 8.0
    assert "partner_seconds_p95" in measured


def test_an_evaluations_average_is_of_the_games_played(tokenizer, tokenizer_dir, tmp_path) -> None:
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path, evaluation=True)
    results = {"rewards": [sample.reward for sample in samples], "samples": samples}
    assert log_eval_rollout(3, args, {"held_out": results}, None) is False
    played = [sample.reward for sample in samples[:3]]
    assert results["rewards"][:3] == played
    assert sum(results["rewards"]) / 4 == pytest.approx(sum(played) / 3)
    assert [line.phase for line in read_log(tmp_path / "logs" / "eval.jsonl")] == ["eval"] * 4


def test_an_evaluation_has_the_number_of_steps_trained_before_it(
    tokenizer, tokenizer_dir, tmp_path, monkeypatch
) -> None:
    """slime calls the one before training and the one after the first step by one number."""
    tracked: list[tuple[str, float]] = []
    monkeypatch.setattr(metrics, "_begun", False)
    monkeypatch.setattr(
        metrics.logging_utils, "log", lambda args, found, step_key: tracked.append((step_key, found[step_key]))
    )
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path, evaluation=True)
    for train in (None, 0, 1):
        if train is not None:
            log_rollout(train, args, samples, {}, 1.0)
        results = {"rewards": [sample.reward for sample in samples], "samples": samples}
        log_eval_rollout(train or 0, args, {"held_out": results}, None)
    lines = list(read_log(tmp_path / "logs" / "eval.jsonl"))
    assert [line.step for line in lines] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({line.id for line in lines}) == 12
    steps = [
        (f"{phase}/step", step)
        for phase, step in (("eval", 0), ("rollout", 0), ("eval", 1), ("rollout", 1), ("eval", 2))
    ]
    assert tracked == steps, "trackers have the log's numbers"


def test_a_rollout_of_failures_stops_the_run_once_it_is_logged(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.05}})
    samples = run(args, play(args, make_group(2)))
    with pytest.raises(SlimError, match="2 of 2 dialogues failed"):
        log_rollout(0, args, samples, {}, 1.0)
    assert len(list(read_log(tmp_path / "logs" / "train.jsonl"))) == 2


def test_evaluation_in_which_every_game_failed_stops_the_run(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.05}})
    samples = run(args, play(args, make_group(2), evaluation=True))
    results = {"rewards": [sample.reward for sample in samples], "samples": samples}
    with pytest.raises(RunStopped, match="Nothing was measured in held_out: 2 of 2 dialogues failed"):
        log_eval_rollout(0, args, {"held_out": results}, None)
    assert len(list(read_log(tmp_path / "logs" / "eval.jsonl"))) == 2


def test_selfplay_logs_both_seats(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"partner": {"kind": "self"}})
        games = run(args, play(args, make_group(2)))
    log_rollout(0, args, [sample for game in games for sample in game], {}, 1.0)
    lines = list(read_log(tmp_path / "logs" / "train.jsonl"))
    assert [line.seat for line in lines] == [0, 1, 0, 1]
    assert len({line.group for line in lines}) == 2
    assert len({line.id for line in lines}) == 4


def test_hooks_can_be_called_as_slime_calls_them() -> None:
    asked = inspect.signature(generate)
    asked.bind("args", "sample", "sampling_params", evaluation=True)
    assert "evaluation" in asked.parameters, "slime looks for the name before it passes it"
    assert inspect.iscoroutinefunction(generate)
    for hook, arguments in [(keep_usable_groups, 2), (normalize_rewards, 2), (log_rollout, 5), (log_eval_rollout, 4)]:
        inspect.signature(hook).bind(*range(arguments))
        assert not inspect.iscoroutinefunction(hook)


@pytest.mark.parametrize("reason", [StopReason.BUDGET, StopReason.OUTAGE])
def test_a_rollout_that_the_partners_end_met_is_not_trained_on(tokenizer, tokenizer_dir, tmp_path, reason) -> None:
    """One game in four is enough: which ones it met is no accident."""
    args, samples = play_some(tokenizer, tokenizer_dir, tmp_path)
    failed = next(sample for sample in samples if sample.status == sample.Status.FAILED)
    failed.metadata[RECORD] |= {"stop_reason": reason.value, "failure": "No money left."}
    with pytest.raises(RunStopped, match=r"Training stops: No money left\."):
        log_rollout(0, args, samples, {}, 1.0)
    assert len(list(read_log(tmp_path / "logs" / "train.jsonl"))) == len(samples), "it is logged all the same"
    results = {"rewards": [sample.reward for sample in samples], "samples": samples}
    with pytest.raises(RunStopped, match="No money left"):
        log_eval_rollout(0, args, {"held_out": results}, None)


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
        samples = run(args, play(args, make_group(1)))
    assert Counting.kept == [tmp_path / "run"]
    with pytest.raises(RunStopped, match="No money left"):
        log_rollout(0, args, samples, {}, 1.0)
