"""Per-turn credit (`train.reward: turn_credit`, `expected_credit`): potential-based shaping (Ng, Harada and Russell 1999).

The potential is the state value: the expected reward of the best action given the policy's knowledge (`Turn.state_value`).

    reward of a turn = reward received at it + (state value after) - (state value before), with state value 0 after the last turn

The rewards from turn t on sum to the dialogue's reward minus the state value before t, so that the optimal policy is unchanged. A question's
cost is subtracted from the turn that asks it.

`expected_credit` replaces each turn's reward by its expectation when the turn was taken (`Gain`), which has the same mean and less variance:
it removes the noise of a question's answer, and of a plan's outcome, which is many times a question's value. It also subtracts a baseline,
the expected gain of a random question.

With a low `decay`, a turn is credited with its own reward only. An invalid turn, which the game refuses, is an exception: it changes no
knowledge, so alone it would cost nothing, however often it ends the dialogue. It is credited with all that follows.

Trainers give all tokens of a dialogue one advantage. Here, the tokens of a turn get their turn's advantage, computed from the same dialogues
and the rewards of another training reward (`of`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from statistics import fmean

from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import StepRewards, make_training_reward
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.lab.training_rewards import Priced
from slim_rl.measured import Gain, measured, says

_EPSILON = 1e-4  # added to the standard deviation, as in TRL


@dataclass(frozen=True, slots=True)
class TurnRewards:
    """Group of a dialogue, and the rewards of its policy turns; no turns if it failed.

    Attributes:
        decays: discount of later rewards for each turn.
    """

    group: str
    turns: list[float]
    decays: list[float]


class TurnCredit(Priced):
    """Per-turn rewards by shaping (`turn_credit`).

    Args:
        price: question cost as for `Priced`, subtracted from the turn that asks.
        decay: discount per turn of later turns' rewards. 1: shaping is only a baseline, and the expected gradient is unchanged; 0: a
            question is credited with the value of its answer only. An invalid turn has 1.
        of: name of the training reward, one with a price, that gives the dialogues' rewards.
    """

    by_turn = True
    expected = False
    needs: tuple[str, ...] = ("state_values",)  # classmethods of the game

    def __init__(
        self,
        config: Config,
        price: float | Sequence[float] = 0.0,
        decay: float = 1.0,
        of: str = "price",
    ) -> None:
        super().__init__(config, price)
        if not isinstance(decay, int | float) or not 0 <= decay <= 1:
            raise ConfigError(f"train.reward_args.decay={decay} is not a number from 0 to 1. Set, for example, 1.")
        self.decay = float(decay)
        self.of = make_training_reward(config.changed(train={"reward": of, "reward_args": {"price": price}}))
        self.as_game, self.whole_step = self.of.as_game, self.of.whole_step
        self._charged = not self.of.whole_step  # a shuffled reward belongs to another dialogue's questions
        self._outcome = type(self.of) is Priced  # the reward is the outcome of the dialogue's plan

    def reward(self, dialogue: Dialogue) -> float | None:
        return self.of.reward(dialogue)

    def __call__(self, dialogues: Sequence[Dialogue], step: int) -> StepRewards:
        rewards = self.of(dialogues, step).rewards
        turns = [
            TurnRewards(each.group, [], []) if reward is None else self.turns(each, reward)
            for each, reward in zip(dialogues, rewards, strict=True)
        ]
        return StepRewards(rewards, turn_advantages(turns, self.config.train.scale_rewards))

    def check(self) -> None:
        super().check()
        game = environment_class(self.config.environment)
        for name in self.needs:
            if not says(game, name):
                raise ConfigError(
                    f"train.reward={self.config.train.reward} needs the instrument's method {game.__name__}.{name}, which is missing. "
                    "Implement it, or set train.reward=price."
                )

    def turns(self, dialogue: Dialogue, reward: float) -> TurnRewards:
        """Returns the rewards of the policy's turns in a dialogue of this reward."""
        instrument = measured(environment_class(self.config.environment))
        price = self.price_of(dialogue.game_id) if self._charged else 0.0
        policy_turns = [turn for turn in dialogue.turns if turn.role == "policy"]
        costs = [price if turn.questions and turn.seeking and not turn.forced else 0.0 for turn in policy_turns]
        rewards = shaped(reward, instrument.state_values(dialogue), costs)
        decays = [self.decay if turn.error is None else 1.0 for turn in policy_turns]
        if not self.expected:
            return TurnRewards(dialogue.group, rewards, decays)
        gains = instrument.expected_gains(dialogue)
        if not self._outcome:
            gains = [*gains[:-1], *(replace(last, expected=None) for last in gains[-1:])]
        return TurnRewards(dialogue.group, expected_rewards(rewards, costs, gains, decays), decays)


class ExpectedCredit(TurnCredit):
    """Per-turn rewards by expectation (`expected_credit`).

    A question is credited with its expected gain in the state value, minus that of a random question, whatever the answer.
    """

    expected = True
    needs = (*TurnCredit.needs, "expected_gains")


def shaped(reward: float, values: Sequence[float], costs: Sequence[float] = ()) -> list[float]:
    """Returns the shaped reward of each turn.

    Args:
        values: state value before each turn.
        costs: cost of each turn, which `reward` already subtracts.
    """
    rewards = [after - before for before, after in zip(values, [*values[1:], reward], strict=False)]
    for turn, cost in enumerate(costs):
        rewards[turn] -= cost
        rewards[-1] += cost
    return rewards


def expected_rewards(
    rewards: Sequence[float], costs: Sequence[float], gains: Sequence[Gain], decays: Sequence[float]
) -> list[float]:
    """Returns `shaped` rewards replaced by their expectations, with each turn's baseline subtracted from its return."""
    expected = [
        reward if gain.expected is None else gain.expected - cost
        for reward, cost, gain in zip(rewards, costs, gains, strict=True)
    ]
    baselines = [*(gain.baseline for gain in gains), 0.0]
    return [
        reward - now + decay * then
        for reward, (now, then), decay in zip(expected, pairwise(baselines), decays, strict=True)
    ]


def returns(turns: Sequence[float], decays: Sequence[float]) -> list[float]:
    """Returns each turn's return: its reward plus the later ones, discounted by its decay and those of the turns between.

    With decays of 1 this is the dialogue's reward minus the state value before the turn.
    """
    out: list[float] = []
    following = 0.0
    for reward, decay in zip(reversed(turns), reversed(decays), strict=True):
        following = reward + decay * following
        out.append(following)
    return out[::-1]


def turn_advantages(dialogues: Sequence[TurnRewards], scale: bool = True) -> list[list[float]]:
    """Returns the advantages of the policy turns, one list per dialogue; empty for a failed one.

    The baseline is the group's mean return of the first turns. The standard deviation weighs dialogues equally, since the number of turns
    is the policy's choice: weighing turns equally would let long dialogues dominate. With a constant state value this is GRPO's advantage.
    """
    all_returns = [returns(dialogue.turns, dialogue.decays) for dialogue in dialogues]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (dialogue, sums) in enumerate(zip(dialogues, all_returns, strict=True)):
        if sums:
            groups[dialogue.group].append(index)
    out: list[list[float]] = [[] for _ in dialogues]
    for members in groups.values():
        if len(members) == 1:  # no baseline
            out[members[0]] = [0.0] * len(all_returns[members[0]])
            continue
        mean = fmean(all_returns[index][0] for index in members)
        squares = sum(fmean((value - mean) ** 2 for value in all_returns[index]) for index in members)
        deviation = sqrt(squares / (len(members) - 1))
        for index in members:
            out[index] = [(value - mean) / (deviation + _EPSILON if scale else 1.0) for value in all_returns[index]]
    return out
