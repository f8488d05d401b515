"""What TRL tells of a step in which a dialogue is paid something else than its game's reward."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("trl")
from slim_rl.backends.trl import run as local
from slim_rl.dialogue.log import read_log
from tests.backends.test_trl import make_config


@pytest.mark.parametrize("reward", ["price", "agreed", "shuffled"])
def test_a_run_logs_the_games_reward_and_beside_it_what_was_paid(folder, reward: str) -> None:
    arguments = {"price": "{price: 0.05}", "agreed": "{}", "shuffled": "{zeros: true}"}[reward]
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
