"""Credit by the turn under slime: per-token advantages from the process of the rollouts to those that train.

slime gives a custom advantage function what its batches carry, and of a sample's own fields that is little: `train_metadata` stays
behind. The one per-token list of numbers that a rollout may add, `teacher_log_probs`, is there for distillation, which nothing
here uses. It is cut for context parallelism and moved to the GPU as logprobs are; an advantage needs just that.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from slime.utils.types import Sample

from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import by_token

_CARRIED = "teacher_log_probs"


def carry_advantages(
    samples: Sequence[Sample], dialogues: Sequence[Dialogue], advantages: Sequence[Sequence[float]]
) -> None:
    """Has each sample carry the advantages of its dialogue's turns; zeros for one that failed."""
    for sample, dialogue, turns in zip(samples, dialogues, advantages, strict=True):
        setattr(sample, _CARRIED, by_token(dialogue, turns, sample.response_length))


def use_turn_advantages(args: Namespace, rollout_data: dict[str, Any]) -> None:
    """slime's ``--custom-advantage-function-path``, where the training reward gives turns their own advantages."""
    rollout_data["advantages"] = rollout_data["returns"] = rollout_data.pop(_CARRIED)
