"""What a dialogue is paid: the game's reward, or what an arm of an experiment puts in its place. The log keeps the game's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slim_rl.config import TrainConfig, parse_config
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.errors import ConfigError
from slim_rl.lab.payment import payment, payments, pays_otherwise, permutation, price_of, shuffled, told_price


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


def test_a_price_may_be_drawn_for_each_game_and_is_paid_in_all_its_dialogues() -> None:
    train = TrainConfig(question_price=(0.0, 0.01, 0.05))
    games = [replace(played(0.7, StopReason.AGREED, 2), game_id=f"game {number}") for number in range(300)]
    costs = [round((0.7 - (payment(game, train) or 0.0)) / 2, 6) for game in games]
    assert all(60 < costs.count(price) < 140 for price in (0.0, 0.01, 0.05))
    assert costs == [price_of(train, game.game_id) for game in reversed(games)][::-1], "whatever was drawn before"
    assert pays_otherwise(train) and not pays_otherwise(TrainConfig(question_price=(0.0,)))
    assert told_price(TrainConfig(question_price=0.05), "game 1") is None
    assert told_price(TrainConfig(question_price=(0.05,)), "game 1") == 0.05


def test_prices_below_zero_and_lists_without_any_are_refused() -> None:
    for wrong in ("-0.1", "[]", "[0.1, -0.1]", "dear"):
        with pytest.raises(ConfigError, match=r"train\.question_price"):
            parse_config({}, [f"train.question_price={wrong}"])


def test_zeros_may_be_shuffled_too() -> None:
    rewards, groups = [0.0, 0.2, None, 0.4, 0.0, 0.6], ["a"] * 4 + ["b"] * 2
    results = [shuffled(rewards, groups, seed, zeros=True) for seed in range(20)]
    assert all(result[2] is None and sorted(result[4:]) == [0.0, 0.6] for result in results)  # type: ignore[type-var]
    assert {result[0] for result in results} == {0.0, 0.2, 0.4}


def test_shuffling_keeps_each_groups_rewards_and_leaves_failures_alone() -> None:
    rewards = [0.1, 0.2, None, 0.4, 0.0, 0.6, 0.7, 0.8]
    groups = ["a"] * 4 + ["b"] * 4
    for seed in range(20):
        result = shuffled(rewards, groups, seed)
        assert result[2] is None
        assert result[4] == 0.0, "a game that ended without agreement"
        assert sorted(r for r in result[:4] if r is not None) == [0.1, 0.2, 0.4]
        assert sorted(result[4:]) == rewards[4:]
    assert any(shuffled(rewards, groups, seed) != rewards for seed in range(5))


def batch() -> list[Dialogue]:
    rewards = [0.2, 0.5, None, 0.8, 0.0, 0.6, 0.7, 0.9]
    made = [played(reward, StopReason.AGREED if reward else StopReason.MAX_TURNS) for reward in rewards]
    for number, dialogue in enumerate(made):
        dialogue.group = "ab"[number // 4]
        if dialogue.reward is None:
            dialogue.stop_reason = StopReason.PARTNER_FAILED
    return made


def test_a_step_is_shuffled_alike_whenever_it_is_shuffled_again() -> None:
    config = parse_config({"seed": 3}, ["train.reward=shuffled"])
    found = [payments(batch(), config, step) for step in range(10)]
    assert found == [payments(batch(), config, step) for step in range(10)]
    assert len({tuple(paid) for paid in found}) > 5, "each step in its own way"
    assert found != [payments(batch(), config.model_copy(update={"seed": 4}), step) for step in range(10)]
    assert payments(batch(), parse_config({}), 0) == [dialogue.reward for dialogue in batch()]


def test_what_is_shuffled_is_what_is_paid() -> None:
    config = parse_config({}, ["train.reward=shuffled_all", "train.question_price=0.1"])
    asked = [played(0.6, StopReason.AGREED, questions) for questions in range(4)]
    assert sorted(payments(asked, config, 0)) == pytest.approx([0.3, 0.4, 0.5, 0.6])  # type: ignore[type-var]


def test_published_runs_are_shuffled_as_they_were() -> None:
    assert shuffled([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], list("aaaaabbb"), 5) == [
        0.2,
        0.4,
        0.1,
        0.5,
        0.3,
        0.8,
        0.7,
        0.6,
    ]
    torch = pytest.importorskip("torch")
    for seed in (0, 1, 77, 2**31 - 1):
        generator, draws = torch.Generator().manual_seed(seed), np.random.RandomState(seed)
        for size in (8, 0, 1, 2, 8, 16, 700):
            assert permutation(size, draws) == torch.randperm(size, generator=generator).tolist()
