"""What TRL is paid by: credit by the turn, rewards of one's own, and its own fields."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from slim_rl import train
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.config import parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.games.matching.study import state_values
from tests.backends.test_trl import Unreliable, batch, make_config, make_rollouts


def advantages(folder: Any, name: str, *overrides: str, unreliable: bool = False) -> dict[str, Any]:
    config = make_config(folder, name, "train.games_per_step=6", "train.stop_failures=1.0", *overrides)
    trainer, _ = make_rollouts(config, folder, Unreliable(config) if unreliable else None)
    return batch(trainer)


def test_dialogue_credit_keeps_trl_advantages(folder) -> None:
    trainer, _ = make_rollouts(make_config(folder, "plain", "train.games_per_step=6"), folder)
    own, _ = make_rollouts(make_config(folder, "own", "train.games_per_step=6"), folder)
    own._generate_and_score_completions = partial(GRPOTrainer._generate_and_score_completions, own)
    found, expected = batch(trainer), batch(own)
    assert found.keys() == expected.keys() and found["advantages"].abs().sum() > 0
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("scale", ["true", "false"])
def test_expected_credit_without_gains_is_the_dialogue_advantage(folder, scale: str) -> None:
    same = f"train.scale_rewards={scale}", "environment=tests.backends.flat.Flat"
    plain = advantages(folder, f"flat-plain-{scale}", *same, unreliable=True)
    shaped = advantages(folder, f"flat-shaped-{scale}", *same, "train.reward=turn_credit", unreliable=True)
    assert torch.equal(plain["completion_ids"], shaped["completion_ids"])
    mask = (plain["completion_mask"] * plain["tool_mask"]).float()
    assert mask.sum() > 0 and plain["advantages"].abs().sum() > 0
    torch.testing.assert_close(shaped["advantages"], plain["advantages"][:, None] * mask, rtol=1e-3, atol=1e-4)


def test_each_turn_has_the_reward_to_come_less_the_state_value(folder) -> None:
    asks = [
        "policy.model=data/warmstart",
        "game={n: 3, p_observed: 0.2, p_observed_2: 0.9, hardness: 0}",
        f"data.train={folder}/asks.jsonl",
    ]
    more = ["limits={turn_tokens: 160, dialogue_tokens: 800}", "train.reward=turn_credit", "train.scale_rewards=false"]
    found = advantages(folder, "shaped", *asks, *more)["advantages"]
    lines = list(read_log(folder / "shaped.jsonl"))
    several = 0
    for start in range(0, len(lines), 4):
        group = lines[start : start + 4]
        values = [state_values(line) for line in group]
        mean = sum((line.reward or 0) - known[0] for line, known in zip(group, values, strict=True)) / 4
        for row, (line, known) in enumerate(zip(group, values, strict=True), start):
            spans = [turn.span for turn in line.turns if turn.role == "policy"]
            several += len(set(known)) > 1
            for span, before in zip(spans, known, strict=True):
                assert span is not None
                own = found[row, span[0] : span[1]]
                assert own.tolist() == pytest.approx([line.reward - before - mean] * len(own), abs=1e-5)
    assert several, "some dialogue in which an answer changed what was known"


@pytest.mark.parametrize("reward", ["price", "agreed", "shuffled", "turn_credit"])
def test_a_run_logs_the_games_reward_and_beside_it_what_was_paid(folder, reward: str) -> None:
    arguments = {"price": "{price: 0.05}", "agreed": "{}", "shuffled": "{zeros: true}", "turn_credit": "{decay: 0.5}"}[
        reward
    ]
    change = f"train={{reward: {reward}, reward_args: {arguments}}}"
    result = local.train(make_config(folder, reward, change, "train.steps=2", "train.eval_games=0"))
    metrics = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    for step, line in enumerate(metrics):
        dialogues = [d for d in read_log(result.log_dir / "train.jsonl") if d.step == step]
        assert line["reward"] == pytest.approx(sum(d.reward or 0 for d in dialogues) / len(dialogues))
        if reward == "price":
            assert line["train_reward"] == pytest.approx(line["reward"] - 0.05 * line["questions"], abs=1e-6)
        elif reward == "agreed":
            assert line["train_reward"] == pytest.approx(line["agreed"])


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
