"""Baselines and the group filter: a failed game has no say in either."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.dialogue.record import Dialogue, StopReason
from tests.backends.slime_setup import Sample, make_args

from slim_rl.rollout import keep_usable_groups, normalize_rewards  # isort: skip

Status = Sample.Status


def sample(reward: float | None, group: int = 0, seat: int = 0) -> Sample:
    """A played game, or a failed one if `reward` is None."""
    reason = StopReason.AGREED if reward is not None else StopReason.PARTNER_FAILED
    record = dialogue(reason, seat)
    record.reward, record.group = reward, f"{group}/{seat}"
    made = Sample(group_index=group, metadata={"dialogue": record.to_dict(tokens=False)})
    made.status, made.reward, made.remove_sample = Status.COMPLETED, reward, False
    if reward is None:
        made.status, made.reward, made.remove_sample = Status.FAILED, 0.0, True
    return made


def dialogue(reason: StopReason, seat: int = 0) -> Dialogue:
    return Dialogue("id", "g", seat, 0, {}, {}, {}, stop_reason=reason, failure="why")


@pytest.fixture
def args(tokenizer_dir: Path, tmp_path: Path) -> Any:
    return make_args(tokenizer_dir, 0, tmp_path)


rewards = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8)


@given(groups=st.lists(rewards, min_size=1, max_size=4))
def test_failed_games_never_shift_a_baseline(groups: list[list[float | None]], tmp_path_factory: Any) -> None:
    args = make_args(Path(), 0, Path())
    batch = [sample(reward, group) for group, members in enumerate(groups) for reward in members]
    _, normalized = normalize_rewards(args, batch)
    at = 0
    for members in groups:
        advantages = normalized[at : at + len(members)]
        played = [reward for reward in members if reward is not None]
        scale = stdev(played) + 1e-6 if len(played) > 1 else 1e-6
        for reward, advantage in zip(members, advantages, strict=True):
            expected = 0.0 if reward is None else (reward - mean(played)) / scale
            assert math.isclose(advantage, expected, rel_tol=1e-6, abs_tol=1e-6)
        at += len(members)


@given(played=st.lists(st.floats(0, 1), min_size=2, max_size=8), failures=st.integers(1, 8))
def test_rewards_of_played_games_ignore_failures(played: list[float], failures: int) -> None:
    args = make_args(Path(), 0, Path())
    alone = normalize_rewards(args, [sample(reward) for reward in played])
    raw, normalized = normalize_rewards(args, [sample(reward) for reward in [*played, *[None] * failures]])
    assert normalized[: len(played)] == alone[1]
    assert math.isclose(mean(raw), mean(played), abs_tol=1e-9)  # slime logs the mean of raw rewards


def test_seats_of_selfplay_are_groups_of_their_own(args) -> None:
    batch = [sample(reward, 0, seat) for seat, reward in [(0, 0.0), (1, 0.5), (0, 1.0), (1, 0.5)]]
    args.grpo_std_normalization = False
    assert normalize_rewards(args, batch)[1] == [-0.5, 0.0, 0.5, 0.0]


def test_seats_of_selfplay_count_as_a_dialogue_each(args) -> None:
    batch = [sample(reward, 0, seat) for seat, reward in [(0, 0.0), (1, 0.0), (0, 1.0), (1, 1.0)]]
    for selfplay, expected in [(False, [0, 0, 1, 1]), (True, [None] * 4)]:  # slime numbers what has none
        for number, one in enumerate(batch):
            one.rollout_id = number // 2  # of both seats, as the hook gives it
        args.slim_rl["partner"] = {"kind": "self" if selfplay else "shy"}
        normalize_rewards(args, batch)
        assert [one.rollout_id for one in batch] == expected


def test_as_slime_normalises_where_nothing_failed(args) -> None:
    torch = pytest.importorskip("torch")
    values = [0.1, 0.9, 0.4, 0.4, 1.0, 0.0, 0.5, 0.2]
    batch = [sample(value, group) for group in (0, 1) for value in values[4 * group : 4 * group + 4]]
    table = torch.tensor(values).reshape(2, 4)
    table = (table - table.mean(-1, keepdim=True)) / (table.std(-1, keepdim=True) + 1e-6)
    assert normalize_rewards(args, batch)[1] == pytest.approx(table.flatten().tolist(), abs=1e-5)


@pytest.mark.parametrize(("estimator", "normal"), [("ppo", True), ("grpo", False)])
def test_no_normalisation_where_slime_has_none(args, estimator, normal) -> None:
    args.advantage_estimator, args.rewards_normalization = estimator, normal
    raw, normalized = normalize_rewards(args, [sample(0.25), sample(0.75), sample(None)])
    assert normalized == [0.25, 0.75, 0.0]
    assert raw == [0.25, 0.75, 0.5]


def test_a_batch_of_failures_alone_is_zeros(args) -> None:
    assert normalize_rewards(args, [sample(None), sample(None)]) == ([0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize(
    ("group", "settings", "reason"),
    [
        ([0.1, 0.2, 0.3, 0.4], {}, None),
        ([0.1, 0.2, None, None], {}, None),
        ([0.1, None, None, None], {}, "too_few_played"),
        ([None] * 4, {"min_survivors": 0.0, "drop_equal_rewards": True}, "equal_rewards"),
        ([0.3, 0.3, 0.3, None], {"drop_equal_rewards": True}, "equal_rewards"),
        ([0.3, 0.3, 0.3, 0.3], {}, None),
        ([0.3, None, None, None], {"min_survivors": 0.25}, None),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_groups_that_are_kept(tmp_path, group, settings, reason, nested) -> None:
    args = make_args(tmp_path, 0, tmp_path, {"slime": settings})
    samples = [sample(reward) for reward in group]
    output = keep_usable_groups(args, [[s] for s in samples] if nested else samples)
    assert (bool(output.keep), output.reason) == (reason is None, reason)
    assert output.keep or output.keep_when_insufficient, "where no group can take its place, nothing is drawn again"
