"""Credit by the turn (`train.credit: turn`, `expected`): potential-based shaping (Ng, Harada and Russell 1999) by the state value, the
reward expected of the best action by what the policy knows (`Turn.state_value`).

    a turn is paid the reward that follows it and F = (state value after) - (state value before), where that after the last turn is 0

so that all payments of a dialogue from turn t on add up to its reward less the state value before t: the best policy stays the
same. What a question costs is taken off the turn that asks it. With `expected` a turn is paid what that was expected to be when it was
taken (`Gain`), which is the same on average: a question without the luck of its answer, and a plan without that of its outcome, which is
many times what a question is worth. What it earns is compared with a question drawn at random, a baseline that moves no expectation either.

A trainer of its own accord gives every token of a dialogue one advantage; here a turn's tokens have their turn's own, computed from the
same dialogues and the same `payment`. Nothing here runs with `train.credit: dialogue`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from statistics import fmean

from slim_rl.config import Config, TrainConfig
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import environment_class
from slim_rl.lab.payment import price_of, shuffles
from slim_rl.measured import Gain, measured

_EPSILON = 1e-4  # added to a deviation before dividing by it, as TRL does


@dataclass(frozen=True, slots=True)
class Paid:
    """One dialogue: its group, and what each of its policy's turns was paid. No turn: it failed."""

    group: str
    turns: list[float]


def turn_payments(dialogues: Sequence[Dialogue], rewards: Sequence[float | None], config: Config) -> list[Paid]:
    """What the turns of annotated dialogues are paid, where the dialogues are paid `rewards` (see `payment`)."""
    game, train = measured(environment_class(config.environment)), config.train

    def turns(dialogue: Dialogue, reward: float) -> list[float]:
        costs = _costs(dialogue, train)
        paid = shaped(reward, game.state_values(dialogue), costs)
        if train.credit != "expected":
            return paid
        gains = game.expected_gains(dialogue)
        if train.reward != "game":  # the outcome is not what the dialogue is paid for
            gains = [*gains[:-1], *(replace(last, expected=None) for last in gains[-1:])]
        return without_luck(paid, costs, gains, train.credit_lambda)

    return [
        Paid(dialogue.group, [] if reward is None else turns(dialogue, reward))
        for dialogue, reward in zip(dialogues, rewards, strict=True)
    ]


def _costs(dialogue: Dialogue, train: TrainConfig) -> list[float]:
    """What each of the policy's turns cost of what the dialogue is paid; nothing where that may be another dialogue's."""
    price = 0.0 if shuffles(train) else price_of(train, dialogue.game_id)
    own = [turn for turn in dialogue.turns if turn.role == "policy"]
    return [price if turn.questions and turn.seeking else 0.0 for turn in own]


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
    """`shaped` payments, but of what was expected; and by which each turn earns less by what is usual: `returns` at that `decay`."""
    kept = [
        mine if gain.expected is None else gain.expected - cost
        for mine, cost, gain in zip(paid, costs, gains, strict=True)
    ]
    usual = [*(gain.usual for gain in gains), 0.0]
    return [mine - now + decay * then for mine, (now, then) in zip(kept, pairwise(usual), strict=True)]


def returns(turns: Sequence[float], decay: float = 1.0) -> list[float]:
    """What each turn earned: its own payment and those after it, each turn further on weighed by another `decay`. With decay 1 the
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


def by_token(dialogue: Dialogue, turns: Sequence[float], length: int) -> list[float]:
    """Each policy turn's number at the turn's tokens, 0 elsewhere; as long as the response. `turns` is empty for a failed dialogue."""
    out = [0.0] * length
    spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
    for span, value in zip(spans, turns, strict=bool(turns)):
        if span is not None:
            out[span[0] : span[1]] = [value] * (span[1] - span[0])
    return out
