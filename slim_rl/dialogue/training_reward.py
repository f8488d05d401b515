"""Hook for the rewards and advantages of a step's dialogues, the same for every trainer; `train.reward` names it.

    training_reward(dialogues, step) -> StepRewards(rewards, advantages)

Invariants:
    The log keeps the game's reward.
    A failed dialogue has the reward None, which keeps it out of every baseline.
    Equal dialogues in equal order and step get equal rewards from any trainer and in any process.

A custom training reward is a subclass of `TrainingReward`, named by its dotted path. It overrides `reward` if a dialogue's reward
depends on that dialogue alone, and `__call__` if it needs the whole step (`whole_step`) or gives each turn its own advantage
(`by_turn`). Dialogues are annotated and have their tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from slim_rl.config import TRAINING_REWARDS, Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import load_object
from slim_rl.errors import ConfigError, misfit
from slim_rl.seeds import seed_of


@dataclass(frozen=True, slots=True)
class StepRewards:
    """Rewards of a step's dialogues and, optionally, advantages of their turns, in the dialogues' order.

    Attributes:
        rewards: reward per dialogue, which the trainer compares within a group; None if the dialogue failed.
        advantages: advantages of the policy's turns per dialogue, empty if it failed; None: the trainer computes them from rewards.
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
        """Returns the rewards of a training step's annotated dialogues; the first step is 0."""
        return StepRewards([self.reward(dialogue) for dialogue in dialogues])

    def reward(self, dialogue: Dialogue) -> float | None:
        """Returns the reward of one dialogue; None if it failed."""
        return dialogue.reward

    def check(self) -> None:
        """Raises ConfigError if the config's game does not say what this training reward needs."""

    def price_of(self, game_id: str) -> float:
        """Returns the question cost in a game; of several, the one drawn for it, equal in every run and process."""
        prices = self.question_price
        return prices[seed_of("price", game_id) % len(prices)] if isinstance(prices, tuple) else prices

    def visible_price(self, game_id: str) -> float | None:
        """Returns the question cost in a game if the policy reads it (it is drawn per game); None otherwise."""
        return self.price_of(game_id) if isinstance(self.question_price, tuple) else None

    @property
    def takes_the_step(self) -> bool:
        """Returns True if a trainer needs the rewards or advantages of a whole step at once, and not per dialogue.

        That is so if they depend on the whole step, or differ between turns or between the seats of a game.
        """
        return self.whole_step or self.by_turn or (self.config.selfplay and not self.as_game)


def make_training_reward(config: Config) -> TrainingReward:
    """Returns the training reward that `train.reward` and `train.reward_args` name. Raises ConfigError if it cannot be made."""
    name, arguments = config.train.reward, config.train.reward_args
    made = load_object(
        TRAINING_REWARDS.get(name, name), "train.reward", "slim_rl.dialogue.training_reward.TrainingReward"
    )
    if not (isinstance(made, type) and issubclass(made, TrainingReward)):
        raise ConfigError(f"train.reward={name} is not a subclass of slim_rl.TrainingReward; name one that is.")
    try:
        return made(config, **arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"train.reward_args={arguments} does not suit train.reward={name}: {misfit(error)}. Set the arguments that it takes."
        ) from error


def by_token(dialogue: Dialogue, turns: Sequence[float], length: int) -> list[float]:
    """Returns one number per token of the response: that of its policy turn, 0 elsewhere.

    Args:
        turns: number per turn; empty for a failed dialogue.
        length: number of tokens of the trainer's response.
    """
    out = [0.0] * length
    spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
    for span, value in zip(spans, turns, strict=bool(turns)):
        if span is not None:
            out[span[0] : span[1]] = [value] * (span[1] - span[0])
    return out


def train_reward(config: Config, dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """Returns the mean training reward of a step's dialogues as `train_reward`, if it is another than the game's reward.

    No shuffling of a step's rewards moves this mean.
    """
    training_reward = make_training_reward(config)
    rewards = [reward for dialogue in dialogues if (reward := training_reward.reward(dialogue)) is not None]
    return {"train_reward": fmean(rewards)} if rewards and not training_reward.as_game else {}
