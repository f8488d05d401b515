"""Additions to verl's registries, in every process that loads a model's config (actor_rollout_ref.model.external_lib).

- `grpo_played`: verl's GRPO over the rows that were played, for self-play whose seats are rewarded differently (see `launch`).
- `turn_credit`: advantages of single turns, as the run's training reward gives them (see `training_reward`).
- a separate reference model: verl 0.9.1 builds the reference from the policy's checkpoint.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from slim_rl.backends.verl import reward  # noqa: F401  (registers itself)
from slim_rl.backends.verl.names import PLAYED, REFERENCE_VARIABLE, TURN_CREDIT


@register_adv_est(PLAYED)
def grpo_played(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes verl's GRPO advantages of the rows with trainable tokens; 0 for the others and for a group's only one.

    Args:
        token_level_rewards, response_mask: (rows, response length).
        index: each row's prompt group.
    """
    advantages = torch.zeros_like(token_level_rewards)
    played = response_mask.bool().any(dim=-1).numpy()
    siblings = Counter(index[played].tolist())
    compared = played & np.array([siblings[uid] > 1 for uid in index.tolist()])
    if compared.any():
        rows = torch.from_numpy(np.flatnonzero(compared))
        scale = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
        advantages[rows], _ = compute_grpo_outcome_advantage(
            token_level_rewards[rows], response_mask[rows], index[compared], norm_adv_by_std_in_grpo=scale
        )
    return advantages, advantages


@register_adv_est(TURN_CREDIT)
def turn_credit(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the advantages of single turns, which stand in place of the rewards (see `training_reward`).

    Args:
        token_level_rewards, response_mask: (rows, response length).
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages


class ReferenceWorker(TrainingWorker):
    """verl's worker for the reference model, on the checkpoint that REF_MODEL names."""

    def __init__(self, config: Any) -> None:
        path = os.environ.get(REFERENCE_VARIABLE)
        super().__init__(config=with_reference(config, path) if path else config)


def with_reference(config: Any, path: str) -> Any:
    """Copies a TrainingWorkerConfig with the checkpoint at `path` as its model."""
    model = config.model_config
    weights = replace(
        model,
        path=path,
        hf_config_path=path,
        tokenizer_path=path,
        local_path=None,
        hf_config=None,
        generation_config=None,
    )
    return replace(config, model_config=weights)


ActorRolloutRefWorker.ref_worker_cls = ReferenceWorker
