"""What TRL is given for its dialogues: advantages by the turn, rewards of one's own, and its own fields."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from trl import GRPOTrainer

from slim_rl import train
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.config import parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.games.matching.study import state_values
from tests.backends.trl_setup import Unreliable, batch, make_config, make_rollouts, metrics, trained


def advantages(folder: Any, name: str, *overrides: str, unreliable: bool = False) -> dict[str, Any]:
    config = make_config(folder, name, "train.games_per_step=6", "train.stop_failures=1.0", *overrides)
    return batch(make_rollouts(config, folder, Unreliable(config) if unreliable else None)[0])


def test_dialogue_credit_keeps_trl_advantages(folder: Path) -> None:
    own, _ = make_rollouts(make_config(folder, "own", "train.games_per_step=6"), folder)
    own._generate_and_score_completions = partial(GRPOTrainer._generate_and_score_completions, own)
    found, expected = advantages(folder, "plain"), batch(own)
    assert found.keys() == expected.keys() and found["advantages"].abs().sum() > 0
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("scale", ["true", "false"])
def test_expected_credit_without_gains_is_the_dialogue_advantage(folder: Path, scale: str) -> None:
    equal = f"train.scale_rewards={scale}", "environment=tests.backends.flat.Flat"
    plain = advantages(folder, f"flat-plain-{scale}", *equal, unreliable=True)
    shaped = advantages(folder, f"flat-shaped-{scale}", *equal, "train.reward=turn_credit", unreliable=True)
    assert torch.equal(plain["completion_ids"], shaped["completion_ids"])
    mask = (plain["completion_mask"] * plain["tool_mask"]).float()
    assert mask.sum() > 0 and plain["advantages"].abs().sum() > 0
    torch.testing.assert_close(shaped["advantages"], plain["advantages"][:, None] * mask, rtol=1e-3, atol=1e-4)


def test_each_turn_has_the_reward_to_come_less_the_state_value(folder: Path) -> None:
    asks = ["policy.model=data/warmstart", "game={n: 3, p_observed: 0.2, p_observed_2: 0.9, hardness: 0}"]
    more = [f"data.train={folder}/asks.jsonl", "limits={turn_tokens: 160, dialogue_tokens: 800}"]
    credit = ["train.reward=turn_credit", "train.scale_rewards=false"]
    found = advantages(folder, "shaped", *asks, *more, *credit)["advantages"]
    lines = list(read_log(folder / "shaped.jsonl"))
    values = [state_values(line) for line in lines]
    above = [(line.reward or 0) - known[0] for line, known in zip(lines, values, strict=True)]
    for row, (line, known) in enumerate(zip(lines, values, strict=True)):
        mean = sum(above[row // 4 * 4 :][:4]) / 4
        spans = [turn.span for turn in line.turns if turn.role == "policy"]
        for span, before in zip(spans, known, strict=True):
            own = found[row, slice(*span)]  # type: ignore[misc]
            assert own.tolist() == pytest.approx([line.reward - before - mean] * len(own), abs=1e-5)
    assert any(len(set(known)) > 1 for known in values), "some dialogue in which an answer changed what was known"


@pytest.mark.parametrize("reward", ["agreed", "turn_credit"])
def test_a_run_logs_the_games_reward_and_beside_it_what_was_paid(folder: Path, reward: str) -> None:
    changes = (f"train.reward={reward}", "train.steps=1", "train.eval_games=0")
    result = local.train(make_config(folder, reward, *changes))
    [line], dialogues = metrics(result), trained(result)
    assert line["reward"] == pytest.approx(sum(d.reward or 0 for d in dialogues) / len(dialogues))
    if reward == "agreed":
        assert line["train_reward"] == pytest.approx(line["agreed"]) != pytest.approx(line["reward"])


def test_trl_overrides_reach_its_arguments(tmp_path: Path) -> None:
    config = parse_config({}, ["trl.overrides={entropy_coef: 0.01, delta: 4.0}"])
    arguments = grpo_arguments(config, tmp_path)
    assert (arguments.entropy_coef, arguments.delta, arguments.learning_rate) == (0.01, 4.0, config.train.learning_rate)


def test_entropy_bonus_moves_dialogues_without_an_advantage(folder: Path) -> None:
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
    small = {"games_per_step": 2, "group_size": 2, "micro_batch": 4}
    result = train(config.changed(data={"num_train": 4}, limits={"turn_tokens": 4}, train=small))
    assert result is not None and (result.run_dir / "model").is_dir() and not result.after
