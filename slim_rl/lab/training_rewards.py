"""Training rewards of experiments (`train.reward`): question costs, and controls that do not reward a better plan.

    price         game's reward, minus the cost of the questions
    agreed        1 for any agreement, else 0, minus the cost of the questions
    shuffled      rewards of `price`, permuted within a group; with zeros: true, including rewards of 0

Per-turn credit is in `credit`.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from slim_rl.config import Config
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.training_reward import StepRewards, TrainingReward
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.measured import says
from slim_rl.seeds import seed_of

_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_PRICE: TypeAdapter[Any] = TypeAdapter(_Price | Annotated[tuple[_Price, ...], Field(min_length=1)])


class Priced(TrainingReward):
    """The game's reward, minus a question cost for each turn that seeks information.

    Args:
        price: question cost, as a share of the highest reward; a list: one of these is drawn per game, and the policy reads it.
    """

    def __init__(self, config: Config, price: float | Sequence[float] | None = None) -> None:
        super().__init__(config)
        if price is None:
            raise ConfigError(
                "train.reward=price needs train.reward_args.price, such as 0.01; set it, or train.reward=game."
            )
        try:
            self.question_price = _PRICE.validate_python(price)
        except ValidationError as error:
            raise ConfigError(
                f"train.reward_args.price={price} is not a number of at least 0, or a list of such. Set, for example, 0.01."
            ) from error
        self.as_game = not np.any(self.question_price)

    def reward(self, dialogue: Dialogue) -> float | None:
        if dialogue.reward is None:
            return None
        price = self.price_of(dialogue.game_id)
        return self.outcome(dialogue) - (price * float(measures(dialogue)["questions"]) if price else 0.0)

    def outcome(self, dialogue: Dialogue) -> float:
        """Returns the reward of a dialogue that did not fail, before its questions are charged."""
        assert dialogue.reward is not None
        return dialogue.reward

    def check(self) -> None:
        game = environment_class(self.config.environment)
        if np.any(self.question_price) and not says(game, "annotate"):
            raise ConfigError(
                f"train.reward_args.price needs the instrument's method {game.__name__}.annotate, which is missing. Implement it to annotate "
                "questions, or leave the price out."
            )


class Agreed(Priced):
    """1 for any agreement, else 0 (a control)."""

    def __init__(self, config: Config, price: float | Sequence[float] = 0.0) -> None:
        super().__init__(config, price)
        self.as_game = False

    def outcome(self, dialogue: Dialogue) -> float:
        return float(dialogue.stop_reason in (StopReason.AGREED, StopReason.FINISHED))


class Shuffled(Priced):
    """Rewards permuted within their groups, so that a better plan is not rewarded (a control).

    A game without agreement keeps its reward, so that the arm still learns the rules; otherwise the policy collapses within a few steps. With
    `zeros`, the rules are not rewarded either, and something else must stabilise the policy, such as `train.kl_coef`.
    """

    whole_step = True

    def __init__(self, config: Config, price: float | Sequence[float] = 0.0, zeros: bool = False) -> None:
        super().__init__(config, price)
        self.zeros = zeros

    def __call__(self, dialogues: Sequence[Dialogue], step: int) -> StepRewards:
        rewards = [self.reward(dialogue) for dialogue in dialogues]
        groups = [one.group if one.reward or self.zeros else one.id for one in dialogues]  # alone, a game keeps its own
        return StepRewards(shuffled(rewards, groups, seed_of(self.config.seed, "shuffle", step), zeros=self.zeros))


def shuffled(
    rewards: Sequence[float | None], groups: Sequence[str], seed: int, zeros: bool = False
) -> list[float | None]:
    """Returns rewards permuted within groups; None stays None, and 0 stays 0 unless `zeros`."""
    import torch  # which training has anyway

    draws = torch.Generator().manual_seed(seed)
    result = list(rewards)
    rows: dict[str, list[int]] = defaultdict(list)
    for index, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        if reward or (zeros and reward is not None):
            rows[group].append(index)
    for indices in rows.values():
        for target, source in zip(indices, torch.randperm(len(indices), generator=draws).tolist(), strict=True):
            result[target] = rewards[indices[source]]
    return result
