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
    record = Dialogue("id", "g", seat, 0, {}, {}, {}, stop_reason=reason, failure="why")
    record.reward, record.group = reward, f"{group}/{seat}"
    made = Sample(group_index=group, metadata={"dialogue": record.to_dict(tokens=False)})
    made.status, made.reward, made.remove_sample = Status.COMPLETED, reward, False
    if reward is None:
        made.status, made.reward, made.remove_sample = Status.FAILED, 0.0, True
    return made


@pytest.fixture
def args(tokenizer_dir: Path, tmp_path: Path) -> Any:
    return make_args(tokenizer_dir, 0, tmp_path)


rewards = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8)


@given(groups=st.lists(rewards, min_size=1, max_size=4))
def test_failed_games_never_shift_a_baseline(groups: list[list[float | None]], tmp_path_factory: Any) -> None:
    args = make_args(Path(), 0, Path())
    batch = [sample(reward, group) for group, members in enumerate(groups) for reward in members]
    raw, normalized = normalize_rewards(args, batch)
    every = [reward for members in groups for reward in members if reward is not None]
    at = 0
    for members in groups:
        advantages = normalized[at : at + len(members)]
        played = [reward for reward in members if reward is not None]
        scale = stdev(played) + 1e-6 if len(played) > 1 else 1e-6
        for reward, advantage in zip(members, advantages, strict=True):
            expected = 0.0 if reward is None else (reward - mean(played)) / scale
            assert math.isclose(advantage, expected, rel_tol=1e-6, abs_tol=1e-6)
        average = mean(played or every or [0.0])  # slime logs the mean of raw rewards
        assert raw[at : at + len(members)] == pytest.approx([average if r is None else r for r in members])
        at += len(members)


def test_selfplay_seats_are_groups_and_count_as_a_dialogue_each(args) -> None:
    batch = [sample(reward, 0, seat) for seat, reward in [(0, 0.0), (1, 0.5), (0, 1.0), (1, 0.5)]]
    args.grpo_std_normalization = False
    for selfplay, expected in [(False, [0, 0, 1, 1]), (True, [None] * 4)]:  # slime numbers what has none
        for number, one in enumerate(batch):
            one.rollout_id = number // 2  # of both seats, as the hook gives it
        args.slim_rl["partner"] = {"kind": "self" if selfplay else "shy"}
        assert normalize_rewards(args, batch)[1] == [-0.5, 0.0, 0.5, 0.0]
        assert [one.rollout_id for one in batch] == expected


@pytest.mark.parametrize(("estimator", "normal"), [("ppo", True), ("grpo", False)])
def test_no_normalisation_where_slime_has_none(args, estimator, normal) -> None:
    args.advantage_estimator, args.rewards_normalization = estimator, normal
    raw, normalized = normalize_rewards(args, [sample(0.25), sample(0.75), sample(None)])
    assert normalized == [0.25, 0.75, 0.0]
    assert raw == [0.25, 0.75, 0.5]


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
