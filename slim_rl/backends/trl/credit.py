"""Credit by the turn: potential-based shaping (Ng, Harada and Russell 1999) by the worth of what the policy knows.

    a turn is paid the reward that follows it and F = worth(after) - worth(before), where the worth after the last turn is 0

so that all payments of a dialogue from turn t on add up to its reward less worth(t): the best policy stays the same. TRL gives every
token of a dialogue one advantage; here a turn's tokens have their turn's own, computed from the same dialogues and the same
`payment`. Nothing here runs with `train.credit: dialogue`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object

from slim_rl.backends.trl.rewards import GameReward
from slim_rl.config import Config
from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import ConfigError

if TYPE_CHECKING:
    from slim_rl.backends.trl.rollouts import Rollouts

_EPSILON = 1e-4  # added to a deviation before dividing by it, as TRL does


@dataclass(frozen=True, slots=True)
class Paid:
    """One dialogue: its group, what it was paid (None: it failed), and the worth before each of its policy's turns."""

    group: str
    reward: float | None
    worth: list[float]


class TurnCredit:
    """Per-token advantages of the step's dialogues. Raises ConfigError if the game does not say what knowledge is worth."""

    def __init__(self, config: Config, rollouts: Rollouts, reward: GameReward) -> None:
        self.game = environment_class(config.environment)
        if getattr(self.game.worth, "__func__", None) is BaseEnvironment.worth.__func__:  # type: ignore[attr-defined]
            raise ConfigError(
                f"train.credit is turn, but {self.game.__name__} does not say what knowledge is worth: give it a classmethod "
                "worth(dialogue), or set train.credit to dialogue."
            )
        self.train, self.rollouts, self.reward = config.train, rollouts, reward

    def __call__(self, process: int, width: int, device: Any) -> torch.Tensor:
        """(dialogues of this process, width): each turn's advantage at its tokens, 0 elsewhere. Called by all processes at once."""
        dialogues = self.rollouts.dialogues
        paid = [
            Paid(dialogue.group, reward, [] if reward is None else self.game.worth(dialogue))
            for dialogue, reward in zip(dialogues, self.reward.paid, strict=True)
        ]
        everyone: list[Paid] = gather_object(paid)
        found = turn_advantages(everyone, self.train.credit_lambda, self.train.scale_rewards)
        own = found[process * len(paid) : (process + 1) * len(paid)]
        out = torch.zeros(len(dialogues), width, device=device)
        for row, (dialogue, advantages) in enumerate(zip(dialogues, own, strict=True)):
            spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
            for span, advantage in zip(spans, advantages, strict=bool(advantages)):
                if span is not None:
                    out[row, span[0] : span[1]] = advantage
        return out


def turn_advantages(dialogues: Sequence[Paid], decay: float = 1.0, scale: bool = True) -> list[list[float]]:
    """The advantage of each policy turn, one list a dialogue; empty for one that failed.

    What a turn earned is the sum of its own payment and of those after it, each turn further on weighed by another `decay`. Its
    baseline is the mean over the group of what the first turns earned, and the deviation is taken over dialogues, all turns
    of one together weighing as much as those of another: were each turn to count as one, dialogues of many turns would move
    both, and how many turns to take is the policy's own choice. Where the worth never changes this is GRPO's advantage.
    """
    earned = [[] if paid.reward is None else returns(paid.reward, paid.worth, decay) for paid in dialogues]
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


def returns(reward: float, worth: Sequence[float], decay: float = 1.0) -> list[float]:
    """What each turn earned, for the worth before each: with decay 1 the reward less that worth."""
    out: list[float] = []
    after, following = reward, 0.0
    for before in reversed(worth):
        following = after - before + decay * following
        after = before
        out.append(following)
    return out[::-1]
