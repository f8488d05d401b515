"""Exploring starts (`train.exploring_starts`): in a share of a step's dialogues the first turn is a question that is put for the policy.

    what was put is learned from like the policy's own words, without a weight for how rarely it says them

A policy that never asks meets no answer that could pay it for asking: what it does not say, no reward can strengthen. With a question put in
some of a group's dialogues, these are compared with those that did without, and asking is strengthened by as much as it brings.
The share falls to 0 in a line over `train.exploring_steps`, so nothing is put where there are no steps: a person plays, or what a config pays
is measured. Whose first turn is put follows from the dialogue's seed, so that any process plays the same dialogue again. The name and the idea are of Sutton and Barto, Reinforcement Learning (2018), section 5.3: an episode's first
action is drawn whatever the policy would do, and learned from.
"""

from __future__ import annotations

from typing import Any

from slim_rl.config import Config, TrainConfig
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.interventions import AskFirst
from slim_rl.environment import environment_class
from slim_rl.measured import measured
from slim_rl.seeds import seed_of

_DRAWS = 2**20  # whether a dialogue is one of the share is drawn among so many


def share(train: TrainConfig, step: int) -> float:
    """The share of the dialogues of a step (the first is 0) whose first turn is put."""
    over = train.exploring_steps or train.steps
    return train.exploring_starts * max(0.0, 1 - step / over)


def explores(train: TrainConfig, step: int, seed: int) -> bool:
    """Whether the dialogue of that seed is one of the share."""
    return seed_of("exploring", seed) % _DRAWS < share(train, step) * _DRAWS


def exploring(config: Config, policy: Any, chat: Chat | None, row: Any, step: int, seed: int) -> Any:
    """The policy of a training dialogue: itself, or with a first question put for it."""
    if not explores(config.train, step, seed):
        return policy
    questions = measured(environment_class(config.environment)).questions_worth_asking(
        row.game_state, row.seat, 1, seed
    )
    return AskFirst(policy, chat, questions, name="") if questions else policy
