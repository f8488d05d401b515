"""What a run on verl needs of this machine. Nothing is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata, util
from typing import Any

from slim_rl.backends.checks import Check
from slim_rl.backends.verl.launch import build_overrides, with_models
from slim_rl.config import Config
from slim_rl.errors import SlimError

TRIED = "0.9.1"


def checks(config: Config) -> Iterator[Check]:
    """verl, its command line for this config, the loops and the reward manager it will load, its engine, the GPUs it will want."""
    yield _version()
    yield _engine(config)
    yield _gpus(config)
    config = with_models(config, os.environ)
    if util.find_spec("verl") is None:
        return
    from slim_rl.backends.verl.compose import compose

    try:
        composed = compose(build_overrides(config))
    except SlimError as error:
        yield Check("verl's config", "fail", str(error))
        return
    yield Check(
        "verl's config", "pass", f"{composed.algorithm.adv_estimator}, {config.verl.mode}, {config.verl.engine}"
    )
    yield _parts(composed)


def _version() -> Check:
    try:
        version = metadata.version("verl")
    except metadata.PackageNotFoundError:
        return Check("verl", "fail", "not installed", "pip install 'slim-rl[verl]'")
    if version != TRIED:
        return Check("verl", "warn", f"{version}; tried with {TRIED}", f"pip install verl=={TRIED}")
    missing = [
        name for name in ("transfer_queue", "cachetools", "fastapi", "uvicorn", "ray") if util.find_spec(name) is None
    ]
    if missing:
        return Check("verl", "fail", f"{version} without {', '.join(missing)}", "pip install 'slim-rl[verl]'")
    return Check("verl", "pass", version)


def _engine(config: Config) -> Check:
    name = config.verl.engine
    if util.find_spec(name) is None:
        return Check(
            "engine", "fail", f"{name} is not installed", f"Install {name}, or set verl.engine to the one that is."
        )
    return Check("engine", "pass", f"{name} {metadata.version(name)}")


def _gpus(config: Config) -> Check:
    import torch

    wanted, there = config.verl.gpus, torch.cuda.device_count()
    if there < wanted:
        return Check(
            "verl's GPUs", "fail", f"{there} of the {wanted} that verl.gpus asks for", "Lower verl.gpus, or go to them."
        )
    return Check("verl's GPUs", "pass", f"{wanted} of {there} on each of {config.verl.nodes} node(s)")


def _parts(composed: Any) -> Check:
    """Loads what verl will load by name."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.utils.import_utils import load_class_from_fqn

    rollout = composed.actor_rollout_ref.rollout
    loops: Any = OmegaConf.load(rollout.agent.agent_loop_config_path)
    for loop in loops:
        load_class_from_fqn(loop["_target_"], "agent loop")
    manager = resolve_reward_manager_cls(composed)
    return Check("verl's parts", "pass", f"loop {rollout.agent.default_agent_loop}, reward manager {manager.__name__}")
