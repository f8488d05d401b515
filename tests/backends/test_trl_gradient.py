"""What TRL's gradient is computed without: padding, dialogues without an advantage, prompts read again. `tests/examples` shows that it is
that of GRPO by hand, KL and masks included.
"""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOTrainer

from slim_rl.backends.trl import scoring
from slim_rl.backends.trl.micro_batches import by_length, mark_idle, trim
from tests.backends.trl_setup import batch, make_config, make_rollouts


def spread(folder: Path, name: str, advantages: Sequence[float], *changes: str) -> tuple[Any, dict[str, Any]]:
    """A trainer, and its batch with these advantages."""
    trainer, _ = make_rollouts(make_config(folder, name, *changes), folder)
    inputs = batch(trainer)
    inputs["advantages"] = torch.tensor(advantages)
    return trainer, inputs


def halves_of(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """The batch as two micro-batches."""
    whole = {name: value for name, value in inputs.items() if value.dim() == 0}
    return [inputs | {n: v[half] for n, v in inputs.items() if n not in whole} for half in (slice(0, 4), slice(4, 8))]


def gradient(trainer: Any, batches: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    """Of a step's micro-batches, in the last of which processes add up theirs."""
    trainer.model.zero_grad()
    for place, one in enumerate(batches):
        trainer.accelerator.gradient_state._set_sync_gradients(place == len(batches) - 1)
        trainer._compute_loss(trainer.model, one).backward()
    return [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


RISING = torch.linspace(-1, 1, 8).tolist()


def test_dialogues_of_like_length_share_a_micro_batch(folder: Path) -> None:
    _, inputs = spread(folder, "by_length", RISING)
    ordered = by_length(halves_of(inputs))
    lengths = [(one["prompt_mask"].sum(1) + one["completion_mask"].sum(1)).tolist() for one in ordered]
    assert lengths[0] + lengths[1] == sorted(lengths[0] + lengths[1])
    assert trim(ordered[0])["completion_ids"].shape[1] <= inputs["completion_ids"].shape[1]
    inputs["completion_mask"] *= 0  # by TRL, if all of them were cut
    assert trim(inputs)["completion_ids"].shape[1] == 1


def test_gradient_is_unchanged_by_skipping_zero_advantages(folder: Path) -> None:
    trainer, inputs = spread(folder, "idle", [0.0, 0.5] * 4)
    halves, computed = halves_of(inputs), list[int]()
    trainer.model.register_forward_pre_hook(lambda *_: computed.append(1))
    expected = gradient(trainer, halves)
    assert len(computed) == 2, "each half has dialogues with an advantage"
    ordered = by_length(halves)
    mark_idle(ordered)
    for found, wanted in zip(gradient(trainer, ordered), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert len(computed) == 3
    nothing = [{**half, "advantages": half["advantages"] * 0} for half in halves]
    mark_idle(nothing)
    gradient(trainer, nothing)
    assert len(computed) == 4, "a step's last micro-batch is computed in any case: that is where processes add up"


@pytest.mark.parametrize(("scaled", "regularised"), [(False, False), (True, False), (True, True)])
def test_rewards_equal_but_for_rounding_are_no_signal(
    scaled: bool, regularised: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [f"train.scale_rewards={scaled}", f"train.kl_coef={0.1 * regularised}"]
    trainer, _ = make_rollouts(make_config(folder, f"rounding-{scaled}-{regularised}", *changes), folder)
    groups = torch.tensor([[0.9, 0.9, 0.9, 0.9000004], [0.9, 0.9, 0.9, 0.90001]])
    advantages = groups - groups.mean(1, keepdim=True)
    advantages = advantages / (groups.std(1, keepdim=True) + 1e-4) if scaled else advantages
    given = {"completion_ids": torch.zeros(8, 3), "advantages": advantages.reshape(-1)}
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda *_: dict(given))
    equal, different = trainer._generate_and_score_completions([])["advantages"].reshape(2, 4)
    assert torch.equal(different, advantages[1]), "a real difference stays as it is"
    assert bool(equal.any()) is regularised, "a KL computes every dialogue, so that nothing is skipped"


@pytest.mark.parametrize(("temperature", "cost"), [(1.0, 10_000), (0.7, 0)])
def test_shared_prompts_leave_loss_and_gradient_equal(
    folder: Path, temperature: float, cost: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(scoring, "_PASS_CPU", cost)
    assert not make_rollouts(make_config(folder, "not shared"), folder)[0].shares_prompts, "all weights are trained"
    changes = "train.lora={r: 2}", f"policy.temperature={temperature}"
    trainer, inputs = spread(folder, f"shared{temperature}", RISING, *changes)
    assert trainer.shares_prompts
    sizes: list[int] = []
    model = trainer.model.get_base_model()
    model.base_model.layers[0].mlp.register_forward_hook(lambda _, args, __: sizes.append(args[0].shape[:-1].numel()))
    trainer.shares_prompts = False
    wanted = [trainer._compute_loss(trainer.model, dict(inputs)).detach(), *gradient(trainer, [dict(inputs)])]
    trainer.shares_prompts = True
    loss = trainer._compute_loss(trainer.model, dict(inputs)).detach()
    sizes.clear()
    found = [loss, *gradient(trainer, [dict(inputs)])]
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-5, atol=1e-6)
    assert len(found) == len(wanted) and any(each.any() for each in wanted[1:])
    for one, other in zip(found[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    rows, tokens = inputs["prompt_ids"].shape
    assert sizes[0] == rows // 4 * tokens, "a prompt is read once per group of four"
    completions = inputs["completion_mask"].sum(1)
    assert sum(sizes[1:]) == (completions.sum() if cost == 0 else rows * completions.max()), "padding is not computed"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 80))
def test_passes_of_like_length_are_the_least_work(lengths: list[int], cost: int) -> None:
    def work(passes: Iterable[Sequence[int]]) -> int:
        return sum(len(rows) * max(lengths[row] for row in rows) + cost for rows in passes)

    found = scoring.of_like_length(lengths, cost)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    every = itertools.product(range(len(lengths)), repeat=len(lengths))
    assert work(found) == min(
        work([[row for row, number in enumerate(numbers) if number == each] for each in set(numbers)])
        for numbers in every
    )
