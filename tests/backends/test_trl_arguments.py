"""TRL's own fields, and the shortest game and config."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
import torch

from slim_rl import train
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.config import parse_config
from tests.backends.test_trl import batch, make_config, make_rollouts


def test_trl_overrides_reach_its_arguments(tmp_path: Path) -> None:
    config = parse_config({}, ["trl.overrides={entropy_coef: 0.01, delta: 4.0}"])
    arguments = grpo_arguments(config, tmp_path)
    assert (arguments.entropy_coef, arguments.delta, arguments.learning_rate) == (0.01, 4.0, config.train.learning_rate)


def test_entropy_bonus_moves_dialogues_without_an_advantage(folder: Path) -> None:
    """And only the policy's own tokens: the gradient at the partner's stays zero."""

    def gradient(coefficient: float) -> torch.Tensor:
        config = make_config(folder, f"entropy-{coefficient}", f"trl.overrides={{entropy_coef: {coefficient}}}")
        trainer, _ = make_rollouts(config, folder)
        inputs = batch(trainer) | {"idle": True}
        inputs["advantages"] = torch.zeros_like(inputs["advantages"])
        trainer.accelerator.gradient_state._set_sync_gradients(False)
        trainer.model.zero_grad()
        trainer._compute_loss(trainer.model, inputs).backward()
        grads = [weights.grad for weights in trainer.model.parameters() if weights.grad is not None]
        return torch.cat([grad.flatten() for grad in grads]) if grads else torch.zeros(1)

    assert gradient(0.0).abs().sum() == 0 < gradient(0.1).abs().sum()


def test_shortest_game_and_config_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = parse_config({"environment": "examples.secret_number.SecretNumber"}, ["train.steps=1"])
    result = train(config.changed(data={"num_train": 16}, limits={"turn_tokens": 4}))
    assert result is not None and (result.run_dir / "model").is_dir() and not result.after
