"""GRPO by hand: its gradient is TRL's, only the policy's own tokens are in it, and a failed dialogue is in nothing."""

import re
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

pytest.importorskip("trl")
import torch
from torch import Tensor

from examples.grpo_by_hand import Batch, advantages, logprobs, loss, make_batch, train, update
from slim_rl.backends.trl.micro_batches import by_length
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import Partner, PartnerFailure, make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import RunStopped
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.policies.transformers import load_policy
from tests.examples import sessions
from tests.paths import ROOT

GROUP = 4
# Dialogues of all kinds in a few games: words at random, and turns cut at 52 tokens, which some plans need and others do not.
MIXED = ("train.stop_failures=1.0", "policy.temperature=1.4", "limits.turn_tokens=52")


def config_in(folder: Path, *overrides: str) -> Config:
    """`make run`'s config, with few games."""
    few = ("train.games_per_step=3", f"train.group_size={GROUP}", "train.micro_batch=4")
    model = f"policy.model={ROOT / 'data' / 'warmstart'}"
    return sessions.config_in(folder, ROOT / "configs" / "matching_local.yaml", *few, model, *overrides)


class Unreliable(Partner):
    """The config's partner, whose answers to some dialogues never come."""

    def __init__(self, config: Config) -> None:
        self.partner: Any = make_partner(config)

    @property
    def identity(self) -> dict[str, Any]:
        return self.partner.identity

    async def act(self, view: Any) -> Turn:
        if view.seed % 5 == 0:
            raise PartnerFailure("down")
        return await self.partner.act(view)


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("by_hand")


def trainer_in(folder: Path, *overrides: str) -> tuple[Any, Rollouts]:
    """Our TRL backend, at its first step."""
    config = config_in(folder, *MIXED, *overrides)
    policy, chat = load_policy(config.policy)
    worker = RolloutWorker(config, chat, policy, partner=Unreliable(config))
    rollouts = Rollouts(worker, policy, load_rows(config), DialogueLog(folder / "logs" / "train.jsonl"))
    trainer = make_trainer(config, policy.model, chat.tokenizer, rollouts, folder / "runs")
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    return trainer, rollouts


def groups_of(dialogues: list[Dialogue]) -> list[list[Dialogue]]:
    return [dialogues[start : start + GROUP] for start in range(0, len(dialogues), GROUP)]


def flat_gradient(model: Any, losses: Iterable[Tensor]) -> Tensor:
    """The gradient of the losses' sum, over all weights."""
    model.zero_grad()
    for one in losses:
        one.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def shaken(model: Any, seed: int = 0) -> None:
    """Moves the weights a little, as an update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * weight.std() * torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize(("form", "kl_coef"), [("sequence", 0.0), ("token", 0.5), ("constant", 0.5)])
def test_its_gradient_is_trls(games: Path, form: str, kl_coef: float) -> None:
    scaled = f"train.scale_rewards={kl_coef == 0}"  # each way once
    trainer, rollouts = trainer_in(games, f"train.loss={form}", f"train.kl_coef={kl_coef}", scaled)
    model, config = trainer.model, rollouts.config
    inputs = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    dialogues = rollouts.dialogues
    reasons = {dialogue.stop_reason for dialogue in dialogues}
    assert {StopReason.PARTNER_FAILED, StopReason.TURN_TOKENS, StopReason.AGREED} <= reasons
    assert len({len(dialogue.response_ids) for dialogue in dialogues}) > 3
    batch = make_batch(groups_of(dialogues), config)
    assert len(batch.ids) == sum(not dialogue.failed for dialogue in dialogues) < len(dialogues)

    def by_trl() -> Tensor:
        size = trainer.args.per_device_train_batch_size
        parts = [
            {name: value[start : start + size] if value.dim() else value for name, value in inputs.items()}
            for start in range(0, len(dialogues), size)
        ]
        return flat_gradient(model, (trainer._compute_loss(model, part) for part in by_length(parts)))

    def by_hand(old: Tensor | None = None) -> Tensor:
        return flat_gradient(model, [loss(model, trainer.ref_model, batch, config, old)])

    def same(found: Tensor, expected: Tensor) -> None:
        assert expected.norm() > 1e-4
        assert (found - expected).norm() <= 1e-5 * expected.norm()

    same(by_hand(), by_trl())
    with torch.no_grad():
        played = logprobs(model, batch, config.policy.temperature)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        read = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width = inputs["completion_ids"].shape[1]
        played_by_trl, *_ = trainer._get_per_token_logps_and_entropies(model, ids, read, width)
    shaken(model)  # away from the start, where the KL has a gradient
    same(by_hand(), by_trl())
    # a second update on the same dialogues: ratios leave 1, and some are clipped
    inputs["old_per_token_logps"] = played_by_trl
    ratio = (logprobs(model, batch, config.policy.temperature) - played).exp()[batch.weights > 0]
    assert 0 < ((ratio < 0.8) | (ratio > 1.2)).sum() < len(ratio)
    same(by_hand(played), by_trl())


@pytest.fixture(scope="module")
def played(games: Path) -> tuple[Any, list[Dialogue], Config]:
    """Dialogues, some of which failed, and a model that is no longer quite the one that played them."""
    trainer, rollouts = trainer_in(games)
    trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    config = config_in(games, *MIXED)
    model = load_policy(config.policy)[0].model
    shaken(model)
    return model, rollouts.dialogues, config


@pytest.fixture(scope="module")
def reference(played: Any) -> Any:
    return load_policy(played[2].policy)[0].model


def test_a_group_is_compared_without_those_that_failed() -> None:
    assert advantages([1.0, None, 0.5, 0.0], scale=False) == [0.5, 0.0, 0.0, -0.5]
    assert advantages([1.0, None, 0.5, 0.0], scale=True) == pytest.approx([1, 0, 0, -1], abs=1e-3)
    assert advantages([None, 0.7], scale=True) == [0.0, 0.0]
    assert advantages([None, None], scale=True) == [0.0, 0.0]


def test_two_steps_run_with_a_line_each(games: Path) -> None:
    lines = list(train(config_in(games, "policy.temperature=1.4"), steps=2))
    form = r"step \d: reward [01]\.\d+, questions \d+\.\d+, loss [+-]0\.\d+, gradient \d+\.\d+, \d+\.\d s"
    assert len(lines) == 2 and all(re.fullmatch(form, line) for line in lines), lines


def test_update_lowers_loss_through_policy_tokens_only(played: Any, reference: Any) -> None:
    start, dialogues, config = played
    batch = make_batch(groups_of(dialogues), config)

    def updated(batch: Batch) -> tuple[Any, tuple[float, float]]:
        model = deepcopy(start)
        return model, update(model, reference, torch.optim.SGD(model.parameters(), lr=0.01), batch, config)

    model, found = updated(batch)
    whole = loss(start, reference, batch, config)
    norm = flat_gradient(start, [whole]).norm().item()
    assert len(batch.ids) > config.train.micro_batch, "its parts add up"
    assert found == pytest.approx((whole.item(), norm), rel=1e-3)
    old = logprobs(start, batch, config.policy.temperature).detach()
    before, after = (loss(each, reference, batch, config, old).item() for each in (start, model))
    assert after < before
    still, _ = updated(batch._replace(weights=torch.zeros_like(batch.weights)))
    assert all(map(torch.equal, still.parameters(), start.parameters()))


def test_too_many_failures_stop_it(games: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_in(games)
    monkeypatch.setattr(ShyPartner, "act", AsyncMock(side_effect=PartnerFailure("the endpoint is down")))
    with pytest.raises(RunStopped, match="the endpoint is down"):
        list(train(config, steps=1))
