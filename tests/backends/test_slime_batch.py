"""A rollout's samples under slime: baselines, group filter, dialogue log and metrics. A failed game moves no number but its own."""

import copy
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import RunStopped
from slim_rl.games.matching.partners.scripted import ShyPartner
from tests.backends.slime_setup import Sample, Status, make_args, make_group, play_group, run, serve

from slim_rl.backends.slime import log as metrics  # isort: skip
from slim_rl.rollout import keep_usable_groups, log_eval_rollout, log_rollout, normalize_rewards  # isort: skip


def sample(reward: float | None, group: int = 0, seat: int = 0) -> Sample:
    """A played game, or a failed one if `reward` is None."""
    reason = StopReason.AGREED if reward is not None else StopReason.PARTNER_FAILED
    record = Dialogue("id", "g", seat, 0, {}, {}, {}, stop_reason=reason, failure="why")
    record.reward, record.group = reward, f"{group}/{seat}"
    made = Sample(group_index=group, metadata={"dialogue": record.to_dict(tokens=False)})
    made.status, made.reward, made.remove_sample = Status.COMPLETED, reward, False
    if reward is None:
        made.status, made.reward, made.remove_sample = Status.FAILED, 0.0, True
    return made


rewards = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8)


@given(groups=st.lists(rewards, min_size=1, max_size=4))
def test_failed_games_never_shift_a_baseline(groups: list[list[float | None]]) -> None:
    batch = [sample(reward, group) for group, members in enumerate(groups) for reward in members]
    raw, normalized = normalize_rewards(make_args(Path(), 0, Path()), batch)
    every = [reward for members in groups for reward in members if reward is not None]
    expected, averages = list[float](), list[float]()
    for members in groups:
        played = [reward for reward in members if reward is not None]
        scale = stdev(played) + 1e-6 if len(played) > 1 else 1e-6
        expected += [0.0 if reward is None else (reward - mean(played)) / scale for reward in members]
        average = mean(played or every or [0.0])  # slime logs the mean of raw rewards
        averages += [average if reward is None else reward for reward in members]
    assert all(math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-6) for pair in zip(normalized, expected, strict=True))
    assert raw == pytest.approx(averages)


@pytest.mark.parametrize(("kind", "numbers"), [("shy", [0, 0, 1, 1]), ("self", [None] * 4)])
def test_selfplay_seats_are_groups_and_count_as_a_dialogue_each(args: Any, kind: str, numbers: Any) -> None:
    batch = [sample(reward, 0, seat) for seat, reward in [(0, 0.0), (1, 0.5), (0, 1.0), (1, 0.5)]]
    for number, one in enumerate(batch):
        one.rollout_id = number // 2  # of both seats, as the hook gives it
    args.grpo_std_normalization, args.slim_rl["partner"] = False, {"kind": kind}
    assert normalize_rewards(args, batch)[1] == [-0.5, 0.0, 0.5, 0.0]
    assert [one.rollout_id for one in batch] == numbers, "slime numbers what has none"


@pytest.mark.parametrize(("estimator", "normal"), [("ppo", True), ("grpo", False)])
def test_no_normalisation_where_slime_has_none(args: Any, estimator: str, normal: bool) -> None:
    args.advantage_estimator, args.rewards_normalization = estimator, normal
    found = normalize_rewards(args, [sample(0.25), sample(0.75), sample(None)])
    assert found == ([0.25, 0.75, 0.5], [0.25, 0.75, 0.0])


FAILED, EQUAL, GOOD, HALF = [0.1, None, None, None], [0.3, 0.3, 0.3, None], [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, None, None]


@pytest.mark.parametrize(
    ("groups", "settings", "kept"),
    [
        ([EQUAL, HALF, GOOD], {}, [0, 1]),
        ([FAILED, EQUAL, [None] * 4, GOOD], {"drop_equal_rewards": True}, [3, 1]),
        ([FAILED, [None] * 4, GOOD], {"min_survivors": 0.0}, [0, 2]),
        ([FAILED, FAILED], {}, [0, 1]),
    ],
)
def test_groups_that_are_kept(tmp_path: Path, groups: Any, settings: dict[str, Any], kept: list[int]) -> None:
    args = make_args(tmp_path, 0, tmp_path, {"slime": settings, "train": {"games_per_step": 2}})
    played = [[sample(reward, number) for reward in group] for number, group in enumerate(groups)]
    keep_usable_groups(args, played)
    assert [group[0].group_index for group in played] == kept, "too few to choose from: all stay"


def test_dropped_groups_are_logged(args: Any, samples: Any, tmp_path: Path) -> None:
    args.slim_rl["train"] = {"games_per_step": 1}
    keep_usable_groups(args, groups := [samples[:2], samples[2:]])
    for step in (0, 1):
        log_rollout(step, args, groups, {}, 1.0)
    assert [line.step for line in logged(tmp_path)] == [0] * 4 + [1] * 2


# --- the log


@pytest.fixture(scope="module")
def played(tokenizer: Any, tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Three played games and one that failed, of a step and of an evaluation."""
    folder, found = tmp_path_factory.mktemp("played"), {}
    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, folder)
        dead = make_args(tokenizer_dir, 9, folder, {"slime": {"engine_retry_seconds": 0.05}})
        for phase in ("train", "eval"):
            found[phase] = run(args, play_group(args, make_group(3), phase == "eval"))
            found[phase] += run(dead, play_group(dead, make_group(1, first=3), phase == "eval"))
    return found


@pytest.fixture
def samples(played: dict[str, list[Any]]) -> list[Any]:
    return copy.deepcopy(played["train"])


@pytest.fixture
def held_out(played: dict[str, list[Any]]) -> dict[str, Any]:
    """An evaluation as slime hands it over."""
    samples = copy.deepcopy(played["eval"])
    return {"rewards": [sample.reward for sample in samples], "samples": samples}


@pytest.fixture
def args(tokenizer_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(metrics, "_begun", False)
    return make_args(tokenizer_dir, 9, tmp_path)


def logged(folder: Path, phase: str = "train") -> list[Dialogue]:
    return list(read_log(folder / "logs" / f"{phase}.jsonl"))


def test_a_run_that_resumes_takes_back_the_steps_it_plays_again(args: Any, samples: Any, tmp_path: Path) -> None:
    for step in (0, 1, 2):
        assert log_rollout(step, args, samples, {}, 1.0) is False
    lines = logged(tmp_path)[:4]
    assert len({line.id for line in lines}) == 4 and len({line.group for line in lines}) == 1
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


def test_an_evaluations_average_is_of_the_games_played(args: Any, held_out: Any) -> None:
    played = held_out["rewards"][:3]
    assert log_eval_rollout(3, args, {"held_out": held_out}, None) is False
    assert held_out["rewards"] == [*played, pytest.approx(mean(played))]


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
    assert [(line.step, line.phase) for line in lines] == [(step, "eval") for step in (0, 1, 2) for _ in range(4)]
    assert len({line.id for line in lines}) == 12
    steps = [("eval/step", 0), ("rollout/step", 0), ("eval/step", 1), ("rollout/step", 1), ("eval/step", 2)]
    assert tracked == steps, "trackers have the log's numbers"


@pytest.mark.parametrize(
    ("reason", "failure", "first", "train", "evaluation"),
    [
        (None, "", 3, "1 of 1 dialogues failed", "Nothing was measured in held_out: 1 of 1 dialogues failed"),
        ("budget", "No money left.", 0, r"Training stops: No money left\.", "No money left"),
        ("outage", "It is down.", 0, r"Training stops: It is down\.", "It is down"),
    ],
)
def test_a_batch_of_failures_or_the_partners_end_stops_a_run(
    args: Any,
    samples: Any,
    held_out: Any,
    tmp_path: Path,
    reason: Any,
    failure: str,
    first: int,
    train: str,
    evaluation: str,
) -> None:
    """One game in four that the partner's end has met is enough: which ones it met is no accident. They are logged all the same."""
    for those in (samples, held_out["samples"]):
        if reason:
            those[3].metadata["dialogue"] |= {"stop_reason": reason, "failure": failure}
    held_out = {name: values[first:] for name, values in held_out.items()}
    with pytest.raises(RunStopped, match=train):
        log_rollout(0, args, samples[first:], {}, 1.0)
    with pytest.raises(RunStopped, match=evaluation):
        log_eval_rollout(0, args, {"held_out": held_out}, None)
    assert len(logged(tmp_path)) == len(logged(tmp_path, "eval")) == 4 - first


def test_what_a_run_spends_is_kept_beside_its_checkpoints(args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Path] = []
    monkeypatch.setattr(ShyPartner, "keep_spend", lambda self, folder: kept.append(folder))
    args.slim_rl["slime"] = {"engine_retry_seconds": 0.05}
    run(args, play_group(args, make_group(1)))
    assert kept == [Path(args.save)]
