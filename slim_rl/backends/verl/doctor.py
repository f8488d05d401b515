"""Checks of `slim-rl doctor` for verl: verl accepts the config, and loads what it names. Nothing is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from slim_rl.backends.checks import Check, Examination, check_gpus
from slim_rl.backends.verl.compose import check_composed, compose
from slim_rl.backends.verl.launch import build_overrides, with_models
from slim_rl.config import Config


def check_config(config: Config) -> Iterator[Check]:
    """Checks that verl composes and validates its config, and loads our agent loop and reward manager."""
    composed = compose(build_overrides(with_models(config, os.environ)))
    check_composed(config, composed)
    finding = f"{composed.algorithm.adv_estimator}, {config.verl.mode}, {config.verl.engine}"
    yield Check("verl's config", "pass", finding)
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.utils.import_utils import load_class_from_fqn

    agent = composed.actor_rollout_ref.rollout.agent
    loops: Any = OmegaConf.load(agent.agent_loop_config_path)
    for loop in loops:
        load_class_from_fqn(loop["_target_"], "agent loop")
    parts = f"loop {agent.default_agent_loop}, reward manager {resolve_reward_manager_cls(composed).__name__}"
    yield Check("verl's parts", "pass", parts)


EXAMINATIONS: dict[str, Examination] = {
    "GPUs": lambda config: check_gpus(config, config.verl.gpus, "verl.gpus"),
    "verl's config": check_config,
}
