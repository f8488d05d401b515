"""Hook for what training gives the dialogues of a step, the same for every trainer; `train.reward` names it.

    training_reward(dialogues, step) -> StepRewards(rewards, advantages)

Invariants:
    The log keeps the game's reward, whatever is given.
    A failed dialogue has the reward None, which keeps it out of every baseline.
    The same dialogues in the same order and step get the same from any trainer and in any process.

A custom one is a subclass of `TrainingReward`, named by its dotted path. It overrides `reward` where a dialogue's reward depends on that dialogue alone, and
`__call__` where it needs the whole step (`whole_step`) or gives each turn its own advantage (`by_turn`). Dialogues are annotated, and have
their tokens where TRL or slime trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slim_rl.config import TRAINING_REWARDS, Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import load_object
from slim_rl.errors import ConfigError
from slim_rl.seeds import seed_of


@dataclass(frozen=True, slots=True)
class StepRewards:
    """Rewards, and advantages of turns, of the dialogues of a step, in their order.

    Attributes:
        rewards: reward per dialogue, which the trainer compares within a group; None if the dialogue failed.
        advantages: advantage of each policy turn per dialogue, empty if it failed; None: the trainer's own, by the rewards.
    """

    rewards: list[float | None]
    advantages: list[list[float]] | None = None


class TrainingReward:
    """Reward that training gives a dialogue: the game's own.

    Args:
        config: the run's config; further arguments are those of `train.reward_args`.

    Attributes:
        whole_step: whether a dialogue's reward depends on the other dialogues of its step.
        by_turn: whether each turn has its own advantage.
        as_game: whether the rewards are the game's, on average over a group.
        question_price: question cost, as a share of the highest reward; several: each game has one of them, and the policy reads it.
    """

    whole_step = False
    by_turn = False
    as_game = True
    question_price: float | tuple[float, ...] = 0.0

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, dialogues: Sequence[Dialogue], step: int) -> StepRewards:
        """Returns what the annotated dialogues of a training step are given; the first step is 0."""
        return StepRewards([self.reward(dialogue) for dialogue in dialogues])

    def reward(self, dialogue: Dialogue) -> float | None:
        """Returns the reward of one dialogue by itself; None if it failed."""
        return dialogue.reward

    def check(self) -> None:
        """Raises ConfigError if the config's game does not say what this training reward needs."""

    def description(self) -> str:
        """Returns what a model's card says of it after the algorithm, from '; ' on; empty for the game's reward."""
        return ""

    def price_of(self, game_id: str) -> float:
        """Returns the question cost in a game. Of several it is the one drawn for this game, the same in every run and process."""
        prices = self.question_price
        return prices[seed_of("price", game_id) % len(prices)] if isinstance(prices, tuple) else prices

    def told_price(self, game_id: str) -> float | None:
        """Returns the question cost in a game if the policy reads it: where it is drawn."""
        return self.price_of(game_id) if isinstance(self.question_price, tuple) else None

    @property
    def takes_the_step(self) -> bool:
        """Returns True if a trainer must have the rewards or advantages once a step is played, and not per dialogue: where the whole step
        decides, and where turns, or the seats of a game, differ.
        """
        return self.whole_step or self.by_turn or (self.config.selfplay and not self.as_game)


def make_training_reward(config: Config) -> TrainingReward:
    """Returns the training reward that `train.reward` names, with its arguments. Raises ConfigError if it cannot be made."""
    name, arguments = config.train.reward, config.train.reward_args
    made = load_object(
        TRAINING_REWARDS.get(name, name), "train.reward", "slim_rl.dialogue.training_reward.TrainingReward"
    )
    try:
        return made(config, **arguments)  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"train.reward_args={arguments} does not suit train.reward={name}: {error}.") from error


def by_token(dialogue: Dialogue, turns: Sequence[float], length: int) -> list[float]:
    """Returns each policy turn's number at the turn's tokens, 0 elsewhere.

    Args:
        turns: number per turn; empty for a failed dialogue.
        length: tokens of the response, as the trainer has it.
    """
    out = [0.0] * length
    spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
    for span, value in zip(spans, turns, strict=bool(turns)):
        if span is not None:
            out[span[0] : span[1]] = [value] * (span[1] - span[0])
    return out


def price_sentence(price: float) -> str:
    """Returns what the policy reads of a question cost, with what it is dealt."""
    return f"Each question costs {100 * price:g}% of the highest reward."
