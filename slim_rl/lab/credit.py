"""Credit by the turn (`train.reward: turn_credit`, `expected_credit`): potential-based shaping (Ng, Harada and Russell 1999) by the state value, the
reward expected of the best action by what the policy knows (`Turn.state_value`).

    a turn is paid the reward that follows it and F = (state value after) - (state value before), where that after the last turn is 0

so that all rewards of the turns of a dialogue from turn t on add up to its reward less the state value before t: the best policy stays the
same. What a question costs is taken off the turn that asks it. With `expected_credit` a turn is paid what that was expected to be when it was
taken (`Gain`), which is the same on average: a question without the luck of its answer, and a plan without that of its outcome, which is
many times what a question is worth. What it earns is compared with a question drawn at random, a baseline that moves no expectation either.

A trainer of its own accord gives every token of a dialogue one advantage; here a turn's tokens have their turn's own, computed from the
same dialogues and the rewards of another training reward (`of`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import StepRewards, make_training_reward
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.lab.training_rewards import Priced
from slim_rl.measured import Gain, measured, says

_EPSILON = 1e-4  # added to a deviation before dividing by it, as TRL does


@dataclass(frozen=True, slots=True)
class Paid:
    """One dialogue: its group, and what each of its policy's turns was paid. No turn: it failed."""

    group: str
    turns: list[float]


class TurnCredit(Priced):
    """Reward of each turn by shaping (`turn_credit`).

    Args:
        price: as for `Priced`; taken off the turn that asks.
        decay: share of what a later turn is given that goes to an earlier one; 1: all of it, so that shaping is only a baseline and leaves
            the expected gradient unchanged; 0: a question is given only what its answer was worth.
        of: training reward of the dialogues, by its short name, whose rewards the turns share.
        of_args: arguments of that training reward.
    """

    by_turn = True
    expected = False
    needs: tuple[tuple[str, str], ...] = (("state_values", "knowledge is worth"),)

    def __init__(
        self,
        config: Config,
        price: float | Sequence[float] = 0.0,
        decay: float = 1.0,
        of: str = "price",
        of_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(config, price)
        if not isinstance(decay, int | float) or not 0 <= decay <= 1:
            raise ConfigError(f"train.reward_args.decay is {decay}: give a number from 0 to 1.")
        arguments = {"price": price, **(of_args or {})}
        self.decay, self.of = (
            float(decay),
            make_training_reward(config.changed(train={"reward": of, "reward_args": arguments})),
        )
        self.as_game, self.whole_step = self.of.as_game, self.of.whole_step
        self._charged = (
            not self.of.whole_step
        )  # a shuffled reward may be another dialogue's, whose questions cost nothing here
        self._outcome = type(self.of) is Priced  # what the dialogue is given is the outcome of its own plan

    def reward(self, dialogue: Dialogue) -> float | None:
        return self.of.reward(dialogue)

    def __call__(self, dialogues: Sequence[Dialogue], step: int) -> StepRewards:
        rewards = self.of(dialogues, step).rewards
        turns = [
            Paid(d.group, [] if reward is None else self.turns(d, reward))
            for d, reward in zip(dialogues, rewards, strict=True)
        ]
        return StepRewards(rewards, turn_advantages(turns, self.decay, self.config.train.scale_rewards))

    def check(self) -> None:
        super().check()
        game = environment_class(self.config.environment)
        for name, what in self.needs:
            if not says(game, name):
                raise ConfigError(
                    f"train.reward is {self.config.train.reward}, but {game.__name__} does not say what {what}: give it a classmethod "
                    f"{name}(dialogue), or set train.reward to price."
                )

    def description(self) -> str:
        how = "a question is paid what it promises" if self.expected else "potential-based shaping"
        return f"{self.of.description()}; credit by turn ({how})"

    def turns(self, dialogue: Dialogue, reward: float) -> list[float]:
        """Returns what each of the policy's turns is given, where the dialogue has that reward."""
        game = measured(environment_class(self.config.environment))
        price = self.price_of(dialogue.game_id) if self._charged else 0.0
        own = [turn for turn in dialogue.turns if turn.role == "policy"]
        costs = [price if turn.questions and turn.seeking else 0.0 for turn in own]
        given = shaped(reward, game.state_values(dialogue), costs)
        if not self.expected:
            return given
        gains = game.expected_gains(dialogue)
        if not self._outcome:
            gains = [*gains[:-1], *(replace(last, expected=None) for last in gains[-1:])]
        return without_luck(given, costs, gains, self.decay)


class ExpectedCredit(TurnCredit):
    """Reward of each turn by what was expected of it (`expected_credit`): a question by its expected gain in the state value, whatever
    the answer, compared with a random question.
    """

    expected = True
    needs = (*TurnCredit.needs, ("expected_gains", "a turn is expected to add to what knowledge is worth"))


def shaped(reward: float, values: Sequence[float], costs: Sequence[float] = ()) -> list[float]:
    """What each turn is paid, for the state values before each.

    Args:
        costs: what each cost, which the reward is less already.
    """
    paid = [after - before for before, after in zip(values, [*values[1:], reward], strict=False)]
    for turn, cost in enumerate(costs):
        paid[turn] -= cost
        paid[-1] += cost
    return paid


def without_luck(paid: Sequence[float], costs: Sequence[float], gains: Sequence[Gain], decay: float) -> list[float]:
    """`shaped` rewards, but of what was expected; and from each the baseline of its turn is taken: `returns` at that `decay`."""
    kept = [
        mine if gain.expected is None else gain.expected - cost
        for mine, cost, gain in zip(paid, costs, gains, strict=True)
    ]
    baselines = [*(gain.baseline for gain in gains), 0.0]
    return [mine - now + decay * then for mine, (now, then) in zip(kept, pairwise(baselines), strict=True)]


def returns(turns: Sequence[float], decay: float = 1.0) -> list[float]:
    """What each turn earned: its own reward and those after it, each turn further on weighed by another `decay`. With decay 1 the
    reward less the state value before the turn.
    """
    out: list[float] = []
    following = 0.0
    for paid in reversed(turns):
        following = paid + decay * following
        out.append(following)
    return out[::-1]


def turn_advantages(dialogues: Sequence[Paid], decay: float = 1.0, scale: bool = True) -> list[list[float]]:
    """The advantage of each policy turn, one list a dialogue; empty for one that failed.

    A turn's baseline is the mean over the group of what the first turns earned, and the deviation is taken over dialogues, all turns
    of one together weighing as much as those of another: were each turn to count as one, dialogues of many turns would move
    both, and how many turns to take is the policy's own choice. Where the state value never changes this is GRPO's advantage.
    """
    earned = [returns(paid.turns, decay) for paid in dialogues]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (paid, sums) in enumerate(zip(dialogues, earned, strict=True)):
        if sums:
            groups[paid.group].append(index)
    out: list[list[float]] = [[] for _ in dialogues]
    for members in groups.values():
        if len(members) == 1:  # nothing to compare it with
            out[members[0]] = [0.0] * len(earned[members[0]])
            continue
        mean = fmean(earned[index][0] for index in members)
        squares = sum(fmean((value - mean) ** 2 for value in earned[index]) for index in members)
        deviation = sqrt(squares / (len(members) - 1))
        for index in members:
            out[index] = [(value - mean) / (deviation + _EPSILON if scale else 1.0) for value in earned[index]]
    return out
