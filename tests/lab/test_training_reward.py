"""What a dialogue is paid: the game's reward, or what an arm of an experiment puts in its place. The log keeps the game's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.training_reward import StepRewards, TrainingReward, make_training_reward
from slim_rl.lab.training_rewards import shuffled


def played(reward: float | None, stop_reason: StopReason, questions: int = 0) -> Dialogue:
    turns = [Turn("[message] ?", 0, "policy", {"kind": "message"}, questions=["pair"], seeking=True)] * questions
    turns.append(Turn("[message] ?", 1, "partner", {"kind": "message"}, questions=["pair"], seeking=True))
    return Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns, reward=reward, stop_reason=stop_reason)


def config_of(training_reward: str, **arguments: Any) -> Config:
    return parse_config({"train": {"reward": training_reward, "reward_args": arguments}})


def training_reward(training_reward: str, **arguments: Any) -> TrainingReward:
    return make_training_reward(config_of(training_reward, **arguments))


def test_price_drawn_per_game_applies_to_its_dialogues() -> None:
    drawn = training_reward("price", price=[0.0, 0.01, 0.05])
    games = [replace(played(0.7, StopReason.AGREED, 2), game_id=f"game {number}") for number in range(300)]
    costs = [round((0.7 - (drawn.reward(game) or 0.0)) / 2, 6) for game in games]
    assert all(60 < costs.count(price) < 140 for price in (0.0, 0.01, 0.05))
    assert costs == [drawn.price_of(game.game_id) for game in reversed(games)][::-1], "whatever was drawn before"
    assert not drawn.as_game and training_reward("price", price=[0.0]).as_game
    assert training_reward("price", price=0.05).visible_price("game 1") is None
    assert training_reward("price", price=[0.05]).visible_price("game 1") == 0.05


class Brief(TrainingReward):
    """A custom training reward: turns cost, and the whole step's best is given to all."""

    whole_step, as_game = True, False

    def __init__(self, config: Config, cost: float = 0.1) -> None:
        super().__init__(config)
        self.cost = cost

    def reward(self, dialogue: Dialogue) -> float | None:
        return None if dialogue.reward is None else dialogue.reward - self.cost * len(dialogue.turns)

    def __call__(self, dialogues: Sequence[Dialogue], step: int) -> StepRewards:
        rewards = [self.reward(dialogue) for dialogue in dialogues]
        best = max(reward for reward in rewards if reward is not None)
        return StepRewards([None if reward is None else best for reward in rewards])


def test_training_reward_by_a_dotted_path_gives_what_it_says() -> None:
    made = training_reward(f"{__name__}.Brief", cost=0.05)
    assert made.takes_the_step and not made.as_game
    assert made(batch(), 0).rewards == [0.85, 0.85, None, *[0.85] * 5]


def test_shuffled_keeps_group_rewards_and_failures() -> None:
    rewards = [0.1, 0.2, None, 0.4, 0.0, 0.6, 0.7, 0.8]
    groups = ["a"] * 4 + ["b"] * 4
    for seed in range(20):
        result = shuffled(rewards, groups, seed)
        assert result[2] is None
        assert result[4] == 0.0, "a game that ended without agreement"
        assert sorted(r for r in result[:4] if r is not None) == [0.1, 0.2, 0.4]
        assert sorted(result[4:]) == rewards[4:]
    assert any(shuffled(rewards, groups, seed) != rewards for seed in range(5))
    zeros = [shuffled(rewards, groups, seed, zeros=True) for seed in range(20)]
    assert all(result[2] is None and sorted(result[4:]) == rewards[4:] for result in zeros)  # type: ignore[type-var]
    assert {result[4] for result in zeros} == set(rewards[4:])


def batch() -> list[Dialogue]:
    rewards = [0.2, 0.5, None, 0.8, 0.0, 0.6, 0.7, 0.9]
    made = [played(reward, StopReason.AGREED if reward else StopReason.MAX_TURNS) for reward in rewards]
    for number, dialogue in enumerate(made):
        dialogue.group = "ab"[number // 4]
        if dialogue.reward is None:
            dialogue.stop_reason = StopReason.PARTNER_FAILED
    return made


def test_a_step_is_shuffled_alike_whenever_it_is_shuffled_again() -> None:
    config = config_of("shuffled").changed(seed=3)
    given = make_training_reward(config)
    found = [given(batch(), step).rewards for step in range(10)]
    assert found == [given(batch(), step).rewards for step in range(10)]
    assert len({tuple(paid) for paid in found}) > 5, "each step in its own way"
    other = make_training_reward(config.changed(seed=4))
    assert found != [other(batch(), step).rewards for step in range(10)]
    assert training_reward("game")(batch(), 0).rewards == [dialogue.reward for dialogue in batch()]


def test_what_is_shuffled_is_what_is_paid() -> None:
    given = training_reward("shuffled", zeros=True, price=0.1)
    asked = [played(0.6, StopReason.AGREED, questions) for questions in range(4)]
    assert sorted(given(asked, 0).rewards) == pytest.approx([0.3, 0.4, 0.5, 0.6])  # type: ignore[type-var]
    mixed = [played(0.0, StopReason.MAX_TURNS, 2), *asked]  # a game without agreement keeps what it costs
    assert {training_reward("shuffled", price=0.1)(mixed, step).rewards[0] for step in range(9)} == {-0.2}


def test_published_runs_are_shuffled_as_they_were() -> None:
    assert shuffled([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], list("aaaaabbb"), 5) == [
        0.2, 0.4, 0.1, 0.5, 0.3, 0.8, 0.7, 0.6,
    ]  # fmt: skip


PAID = """
game {} | 0.7 agreed 3 => 0.7
agreed {} | 0.4 agreed 0 => 1.0
agreed {} | 1.0 agreed 0 => 1.0
agreed {} | 0.0 max_turns 0 => 0.0
agreed {} | 0.0 policy_errors 0 => 0.0
price {price: 0.05} | 0.7 agreed 0 => 0.7
price {price: 0.05} | 0.7 agreed 3 => 0.55
price {price: 0.05} | 0.0 max_turns 2 => -0.1
price {price: 0.05} | null deadline 2 => null
game {} | null partner_failed 2 => null
agreed {} | null partner_failed 2 => null
"""


@pytest.mark.parametrize("line", PAID.strip().splitlines())
def test_training_reward_of_one_dialogue(line: str) -> None:
    """Each line: its name and arguments | the game's reward, stop reason and questions => what is paid."""
    given, _, paid = line.partition(" => ")
    (name, _, arguments), (reward, reason, asked) = (
        given.split(" | ")[0].partition(" "),
        given.split(" | ")[1].split(),
    )
    dialogue = played(yaml.safe_load(reward), StopReason(reason), int(asked))
    found = training_reward(name, **yaml.safe_load(arguments)).reward(dialogue)
    assert found == (None if paid == "null" else pytest.approx(float(paid)))
