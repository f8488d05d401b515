"""Credit by the turn under TRL: each turn's tokens have its advantage, and without it nothing is changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from trl import GRPOTrainer

from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.launch import check
from slim_rl.config import parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.errors import ConfigError
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


def test_a_run_with_it_trains_to_its_end(folder) -> None:
    result = local.train(
        make_config(folder, "by-turn", "train={reward: turn_credit, reward_args: {decay: 0.5}}", "train.steps=2")
    )
    assert len(list(read_log(result.log_dir / "train.jsonl"))) == 2 * 8


def test_expected_credit_without_state_values_is_refused_first(tmp_path) -> None:
    game = {"environment": "examples.secret_number.SecretNumber", "output_dir": str(tmp_path / "runs")}
    config = parse_config(game, ["train.reward=turn_credit"])
    for start in (local.train, check):
        with pytest.raises(ConfigError, match=r"train\.reward=turn_credit needs the instrument's method"):
            start(config)
    assert not (tmp_path / "runs").exists()
