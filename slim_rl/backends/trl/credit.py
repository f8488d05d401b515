"""Credit by the turn under TRL: per-token advantages in place of its one a dialogue (see `dialogue.credit`)."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object

from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.config import Config
from slim_rl.dialogue.credit import Paid, by_token, turn_advantages, turn_payments


class TurnCredit:
    """Per-token advantages of the step's dialogues."""

    def __init__(self, config: Config, rollouts: Rollouts) -> None:
        self.config, self.rollouts = config, rollouts

    def __call__(self, process: int, width: int, device: Any) -> torch.Tensor:
        """(dialogues of this process, width): each turn's advantage at its tokens, 0 elsewhere. Called by all processes at once."""
        dialogues, train = self.rollouts.dialogues, self.config.train
        everyone: list[Paid] = gather_object(turn_payments(dialogues, self.rollouts.paid, self.config))
        found = turn_advantages(everyone, train.credit_lambda, train.scale_rewards)
        own = found[process * len(dialogues) : (process + 1) * len(dialogues)]
        rows = [by_token(dialogue, advantages, width) for dialogue, advantages in zip(dialogues, own, strict=True)]
        return torch.tensor(rows, device=device)
