"""TRL's reward function: it passes on what the dialogues are paid (see `dialogue.payment`), which `Rollouts` has worked out.

in the step's metrics `reward` is the game's, whatever is paid, and `reward_paid` what was paid
"""

from __future__ import annotations

from typing import Any

from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.config import Config
from slim_rl.dialogue.payment import pays_otherwise

GAME_REWARD = "game_reward"  # the game's reward among TRL's metrics, where TRL's own `reward` is another


class GameReward:
    """What each dialogue of the step is paid; None for one that failed."""

    __name__ = "game"

    def __init__(self, config: Config, rollouts: Rollouts) -> None:
        self.otherwise, self.rollouts = pays_otherwise(config.train), rollouts

    def __call__(self, *, payment: list[float | None], log_metric: Any, **_: Any) -> list[float | None]:
        for name, value in self.rollouts.metrics.items():
            log_metric(GAME_REWARD if name == "reward" and self.otherwise else name, value)
        return payment
