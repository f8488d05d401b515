"""Exploring starts (`train.exploring_starts`): a fraction of each step's dialogues begins with a forced question.

A policy that never asks receives no answers, so no reward can reinforce asking. If some dialogues of a group begin with a forced question,
their rewards are compared with the others', and asking is reinforced by its gain. Forced tokens are trained like sampled ones, without an
importance weight for their low probability.

The fraction decays linearly to 0 over `train.exploring_steps`. It applies to training only, not to `play` or `incentives`. A dialogue's
seed decides whether it explores, so that a replay does the same. The method is that of Sutton and Barto, Reinforcement Learning (2018),
section 5.3.
"""

from __future__ import annotations

from typing import Any

from slim_rl.config import Config, TrainConfig
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.interventions import AskFirst
from slim_rl.environment import environment_class
from slim_rl.measured import measured
from slim_rl.seeds import seed_of

_DRAWS = 2**20  # resolution of the draw


def share(train: TrainConfig, step: int) -> float:
    """Returns the fraction of a step's dialogues that begin with a forced question; the first step is 0."""
    over = train.exploring_steps or train.steps
    return train.exploring_starts * max(0.0, 1 - step / over)


def explores(train: TrainConfig, step: int, seed: int) -> bool:
    """Returns True if the dialogue of this seed begins with a forced question."""
    return seed_of("exploring", seed) % _DRAWS < share(train, step) * _DRAWS


def exploring(config: Config, policy: Any, chat: Chat | None, row: Any, step: int, seed: int) -> Any:
    """Returns the policy of a training dialogue, with a forced first question if the dialogue explores."""
    if not explores(config.train, step, seed):
        return policy
    questions = measured(environment_class(config.environment)).questions_worth_asking(
        row.game_state, row.seat, 1, seed
    )
    return AskFirst(policy, chat, questions, name="") if questions else policy
