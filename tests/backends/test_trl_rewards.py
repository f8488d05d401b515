"""What a dialogue is paid: the game's reward, or what an arm of an experiment puts in its place. The log keeps the game's."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("trl")
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.rewards import payment, shuffled
from slim_rl.config import TrainConfig, parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.errors import ConfigError
from slim_rl.keys import check_controls
from tests.backends.test_trl import make_config


def played(reward: float | None, stop_reason: StopReason, questions: int = 0) -> Dialogue:
    turns = [Turn(0, "policy", "[message] ?", {"kind": "message"}, questions=["pair"], seeking=True)] * questions
    turns.append(Turn(1, "partner", "[message] ?", {"kind": "message"}, questions=["pair"], seeking=True))
    return Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns, reward=reward, stop_reason=stop_reason)


def test_the_games_reward_is_paid_as_it_is() -> None:
    assert payment(played(0.7, StopReason.AGREED, 3), TrainConfig()) == 0.7
    assert payment(played(None, StopReason.PARTNER_FAILED), TrainConfig()) is None


def test_for_agreement_alone_every_agreement_is_paid_alike() -> None:
    train = TrainConfig(reward="agreed")
    assert payment(played(0.4, StopReason.AGREED), train) == payment(played(1.0, StopReason.AGREED), train) == 1.0
    assert (
        payment(played(0.0, StopReason.MAX_TURNS), train) == payment(played(0.0, StopReason.POLICY_ERRORS), train) == 0
    )
    assert payment(played(None, StopReason.DEADLINE), train) is None


def test_each_question_of_the_policys_costs_its_price() -> None:
    train = TrainConfig(question_price=0.05)
    assert payment(played(0.7, StopReason.AGREED, 0), train) == 0.7
    assert payment(played(0.7, StopReason.AGREED, 3), train) == pytest.approx(0.55)
    assert payment(played(0.0, StopReason.MAX_TURNS, 2), train) == pytest.approx(-0.1)
    assert payment(played(None, StopReason.PARTNER_FAILED, 2), train) is None


def test_zeros_may_be_shuffled_too() -> None:
    rewards, groups = [0.0, 0.2, None, 0.4, 0.0, 0.6], ["a"] * 4 + ["b"] * 2
    results = [shuffled(rewards, groups, seed, zeros=True) for seed in range(20)]
    assert all(result[2] is None and sorted(result[4:]) == [0.0, 0.6] for result in results)  # type: ignore[type-var]
    assert {result[0] for result in results} == {0.0, 0.2, 0.4}


@pytest.mark.parametrize("change", ["train.question_price=0.05", "train.reward=agreed", "train.reward=shuffled_all"])
def test_a_run_logs_the_games_reward_and_beside_it_what_was_paid(folder, change: str) -> None:
    name = change.replace(".", "-")
    result = local.train(make_config(folder, name, change, "train.steps=2", "train.eval_games=0"))
    metrics = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    for step, line in enumerate(metrics):
        dialogues = [d for d in read_log(result.log_dir / "train.jsonl") if d.step == step]
        assert line["reward"] == pytest.approx(sum(d.reward or 0 for d in dialogues) / len(dialogues))
        if change == "train.question_price=0.05":
            assert line["reward_paid"] == pytest.approx(line["reward"] - 0.05 * line["questions"], abs=1e-6)
        elif change == "train.reward=agreed":
            assert line["reward_paid"] == pytest.approx(line["agreed"])


@pytest.mark.parametrize("change", ["train.question_price=0.05", "train.reward=agreed", "train.frozen=true"])
def test_a_backend_that_cannot_play_a_control_refuses_it(change: str) -> None:
    check_controls(parse_config({}))
    with pytest.raises(ConfigError, match="only the trl backend"):
        check_controls(parse_config({}, [change]))
