"""Starts verl's PPO trainer: one config becomes one YAML file for hydra, and verl's own trainer runs unchanged.

    slim-rl train CONFIG --backend verl [--set key=value …] [verl's key=value …]

`--set` changes a key of slim_rl's config. A bare key=value goes to verl and has the last word. POLICY_MODEL, REF_MODEL and CRITIC_MODEL
in the environment say where the three models start.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.backends import Request, is_trained, say, say_before
from slim_rl.backends.checkpoints import last_whole
from slim_rl.backends.gpus import count_gpus
from slim_rl.backends.ready import check_games, check_model, check_training, try_partner
from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.settings import STOP_MARK, compose, run_dir, settings
from slim_rl.config import Config
from slim_rl.config.trainers import lookup
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import STARTED_IN, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import python_module, running, signals_end_the_run
from slim_rl.runs import RunFolder, check_same

FILE = "verl"  # of the run's folder, with .yaml: what hydra is given
MODELS = {"POLICY_MODEL": "policy.model", "REF_MODEL": "verl.reference_model", "CRITIC_MODEL": "verl.critic_model"}


def start(request: Request) -> None:
    """Writes the run's files, starts `verl.trainer.main_ppo` and waits for its end. It resumes from its last checkpoint. A dry run
    checks the same, prints the settings and the command, and writes nothing; it needs no GPU.

    Raises:
        SlimError: this machine lacks something, the config asks for what verl cannot do, verl refuses a key, the partner cannot be made,
            or the training ended with an error.
    """
    request.no_fresh()
    if not request.dry_run and (lacks := missing()):
        raise ConfigError(lacks)
    config = with_models(request.config, os.environ)
    check(config)
    for key in MODELS.values():
        if name := lookup(config, key):
            check_model(name, key)
    folder, verl = run_dir(config), settings(config)
    composed = compose(verl, request.extra) if find_spec("verl") else None
    config = config.from_anywhere()
    check_same(folder / "config.yaml", config)
    check_games(config, RunFolder(config, folder).logs)
    try_partner(config)
    command = [*python_module("verl.trainer.main_ppo"), "--config-path", str(folder), "--config-name", FILE]
    step = last_whole(folder / "checkpoints")
    if step is not None and step < config.train.steps:
        say(f"{config.name} resumes from step {step} of {config.train.steps}, its last checkpoint")
    say_before(config)
    if request.dry_run:
        if composed is None:
            print("# verl is not installed here: nothing below was checked by it")
        for key, value in verl.items():
            print(f"{key}={value}")
        print(shlex.join([*command, *request.extra]))
        return
    assert composed is not None
    if step is not None and step >= composed.trainer.total_training_steps and composed.trainer.resume_mode == "auto":
        say(is_trained(config, folder))
        return
    with RunFolder(config, folder).begin(prepare=partial(write_data, config, folder)):
        (folder / STOP_MARK).unlink(missing_ok=True)
        _write(composed, folder / f"{FILE}.yaml")
        # Ray's workers import a user's game from there, and no module of another's: PYTHONPATH would come before Python's own.
        with signals_end_the_run(), running(command, env=os.environ | {STARTED_IN: str(Path.cwd())}) as process:
            code = process.wait()
    if code:
        why = (
            (folder / STOP_MARK).read_text(encoding="utf-8")
            if (folder / STOP_MARK).exists()
            else "its own message is above"
        )
        raise SlimError(f"verl stopped with exit code {code}: {why}")


def check(config: Config) -> None:
    """Raises ConfigError if verl cannot do what the config asks for."""
    check_training(config)
    train, verl, training_reward = config.train, config.verl, make_training_reward(config)
    if training_reward.takes_the_step:
        raise ConfigError(
            f"train.reward={train.reward} needs a step's dialogues at once, which verl's agent loops never see; choose train.backend trl or "
            "slime."
        )
    if train.lora is not None and train.lora.dropout:
        raise ConfigError(f"train.lora.dropout is {train.lora.dropout:g}, which verl does not have; set it to 0.")
    if train.lora is not None and verl.reference_model not in (None, config.policy.model):
        raise ConfigError(
            f"verl.reference_model is {verl.reference_model}, but with train.lora verl takes the policy without its adapters as the "
            "reference; leave one of the two out."
        )
    if train.lr_schedule in ("linear", "wsd"):
        raise ConfigError(
            f"train.lr_schedule is {train.lr_schedule}, which verl does not have; choose constant or cosine."
        )
    if verl.mode == "single_turn" and environment_class(config.environment).seats != 1:
        raise ConfigError(
            "verl.mode is single_turn, but the game is one for two; choose a one-seat environment, for the matching game "
            "environment: slim_rl.games.matching.planning.PlanningEnv."
        )
    if verl.mode == "single_turn" and not training_reward.as_game:
        raise ConfigError("verl.mode is single_turn, which plays no dialogues: train.reward would have no effect.")


def missing() -> str:
    """Returns what this machine lacks to start verl."""
    if find_spec("verl") is None:
        other = "Python 3.13 has no verl 0.9.1; use Python 3.11 or 3.12." if sys.version_info >= (3, 13) else ""
        return other or "verl is not installed here: pip install 'slim-rl[verl]'."
    if not count_gpus() and not os.environ.get("RAY_ADDRESS"):
        return "this machine has no GPU, and verl trains on GPUs only."
    return ""


def with_models(config: Config, environment: Mapping[str, str]) -> Config:
    """Returns the config with its models: those that environment variables name, or a folder shipped with slim_rl."""
    sections: dict[str, dict[str, str]] = {"policy": {"model": bundled.model(config.policy.model)}}
    for variable, key in MODELS.items():
        if environment.get(variable):
            section, name = key.split(".")
            sections.setdefault(section, {})[name] = environment[variable]
    return config.changed(**sections)


def _write(composed: Any, path: Path) -> None:
    from omegaconf import OmegaConf

    OmegaConf.save(composed, path)
