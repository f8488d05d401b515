"""What TRL is given as a dialogue's reward: the game's own, unless `train.reward` and `train.question_price` say otherwise.

    the log keeps the game's reward, whatever is paid; in the step's metrics `reward` is the game's and `reward_paid` what was paid

A failed dialogue is paid nothing at all (None), which keeps it out of its group's baseline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from slim_rl.config import Config, TrainConfig
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.seeds import seed_of

if TYPE_CHECKING:
    from slim_rl.backends.trl.rollouts import Rollouts

GAME_REWARD = "game_reward"  # the game's reward among TRL's metrics, where TRL's own `reward` is another


class GameReward:
    """TRL's reward function.

    Attributes:
        paid: what it returned last.
    """

    __name__ = "game"

    def __init__(self, config: Config, rollouts: Rollouts) -> None:
        self.config, self.rollouts = config, rollouts
        self.paid: list[float | None] = []

    def __call__(
        self, *, payment: list[float | None], group: list[str], trainer_state: Any, log_metric: Any, **_: Any
    ) -> list[float | None]:
        train = self.config.train
        for name, value in self.rollouts.metrics.items():
            log_metric(GAME_REWARD if name == "reward" and pays_otherwise(train) else name, value)
        self.paid = payment
        if train.reward in ("shuffled", "shuffled_all"):
            seed = seed_of(self.config.seed, "shuffle", trainer_state.global_step)
            self.paid = shuffled(payment, group, seed, zeros=train.reward == "shuffled_all")
        return self.paid


def pays_otherwise(train: TrainConfig) -> bool:
    """Whether a dialogue is paid something else than its game's reward, or another's of its group."""
    return train.reward == "agreed" or train.question_price > 0


def payment(dialogue: Dialogue, train: TrainConfig) -> float | None:
    """What an annotated dialogue is paid, before any shuffling; None if it failed."""
    if dialogue.reward is None:
        return None
    reward = dialogue.reward
    if train.reward == "agreed":
        reward = float(dialogue.stop_reason in (StopReason.AGREED, StopReason.FINISHED))
    if train.question_price:
        reward -= train.question_price * float(measures(dialogue)["questions"])
    return reward


def shuffled(
    rewards: Sequence[float | None], groups: Sequence[str], seed: int, zeros: bool = False
) -> list[float | None]:
    """Rewards permuted among the rows of the same group. Failed rows stay so, and rows without any reward unless `zeros`.

    A game that came to nothing keeps its 0, so that the arm still learns to play by the rules: were errors to go unpunished, the
    policy would fall apart within a few steps, and there would be nothing to compare. What is taken away is that a better plan
    pays more. With `zeros` that is taken away too, which wants something else to hold the policy, such as `train.kl_coef`.
    """
    generator = torch.Generator().manual_seed(seed)
    result = list(rewards)
    rows: dict[str, list[int]] = defaultdict(list)
    for index, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        if reward or (zeros and reward is not None):
            rows[group].append(index)
    for indices in rows.values():
        order = torch.randperm(len(indices), generator=generator).tolist()
        for target, source in zip(indices, order, strict=True):
            result[target] = rewards[indices[source]]
    return result
