"""GRPO by hand: its gradient is TRL's, only the policy's own tokens are in it, and a failed dialogue is in nothing."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from torch import Tensor

from examples.grpo_by_hand import Batch, advantages, logprobs, loss, make_batch, train, update
from slim_rl.backends.trl.micro_batches import by_length
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config, load_config
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.partner import PartnerFailure, Reply
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import RunStopped
from slim_rl.policies.transformers import load_policy
from tests.paths import ROOT

GROUP = 4


def config_in(folder: Path, *overrides: str) -> Config:
    """`make run`'s config, with few games."""
    places = {"data.train": "train.jsonl", "data.eval": "eval.jsonl", "output_dir": "runs", "log.dir": "logs"}
    settings = [f"{key}={folder / place}" for key, place in places.items()]
    few = ["data.num_train=12", "data.num_eval=2", "train.games_per_step=3", f"train.group_size={GROUP}"]
    model = f"policy.model={ROOT / 'data' / 'warmstart'}"
    path = ROOT / "configs" / "matching_local.yaml"
    return load_config(path, [*settings, *few, "train.micro_batch=4", model, *overrides])


class Unreliable:
    """The config's partner, whose answers to some dialogues never come."""

    def __init__(self, config: Config) -> None:
        self.partner = make_partner(config)
        self.identity = self.partner.identity

    async def reply(self, view: Any) -> Reply:
        if view.seed % 5 == 0:
            raise PartnerFailure("down")
        return await self.partner.reply(view)


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("by_hand")


def trainer_in(folder: Path, *overrides: str) -> tuple[Any, Rollouts]:
    """Our TRL backend, at its first step."""
    config = config_in(folder, "train.stop_failures=1.0", "limits.turn_tokens=20", *overrides)
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
            weight += 0.02 * weight.std() * torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
@pytest.mark.parametrize("form", ["sequence", "token", "constant"])
def test_its_gradient_is_trls(games: Path, form: str, kl_coef: float) -> None:
    trainer, rollouts = trainer_in(games, f"train.loss={form}", f"train.kl_coef={kl_coef}")
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
        print((found - expected).norm() / expected.norm())
        assert expected.norm() > 1e-4
        assert (found - expected).norm() <= 1e-5 * expected.norm()

    same(by_hand(), by_trl())
    played_by = deepcopy(model)
    shaken(model)  # away from the start, where the KL has a gradient
    same(by_hand(), by_trl())
    # a second update on the same dialogues, where ratios are not 1 and some are clipped
    with torch.no_grad():
        old = logprobs(played_by, batch, config.policy.temperature)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        inputs["old_per_token_logps"], *_ = trainer._get_per_token_logps_and_entropies(
            played_by, ids, mask, inputs["completion_ids"].shape[1]
        )
        ratio = (logprobs(model, batch, config.policy.temperature) - old).exp()[batch.weights > 0]
    assert ((ratio < 0.8) | (ratio > 1.2)).any() and ((ratio > 0.8) & (ratio < 1.2)).any()
    same(by_hand(old), by_trl())
