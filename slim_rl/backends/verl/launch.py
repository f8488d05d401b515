"""Starts verl's PPO trainer: one config becomes one YAML file for hydra, and verl's own trainer runs unchanged.

    slim-rl train CONFIG --backend verl [--set key=value …] [verl's key=value …]

`--set` changes a key of slim_rl's config. A bare key=value goes to verl and has the last word. POLICY_MODEL, REF_MODEL and CRITIC_MODEL
in the environment say where the three models start.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from slim_rl import bundled
from slim_rl.backends import Request
from slim_rl.backends.checkpoints import last_whole
from slim_rl.backends.ready import check_model, check_start, check_training, is_trained
from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.settings import STOP_MARK, compose, settings
from slim_rl.config import Config
from slim_rl.config.trainers import from_anywhere, lookup
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import STARTED_IN, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import python_module, running, signals_end_the_run
from slim_rl.ranks import count_gpus
from slim_rl.runs import RunFolder

FILE = "verl"  # of the run's folder, with .yaml: what hydra is given
MODELS = {"POLICY_MODEL": "policy.model", "REF_MODEL": "verl.reference_model", "CRITIC_MODEL": "verl.critic_model"}


def start(request: Request) -> None:
    """Writes the run's files, starts `verl.trainer.main_ppo` and waits for its end. It resumes from its last checkpoint. A dry run
    checks the same, prints the settings and the command, and writes nothing; it needs no GPU.

    Raises:
        SlimError: this machine lacks something, the config asks for what verl cannot do, verl refuses a key, the partner cannot be made,
            or the training ended with an error.
    """
    if not request.dry_run and (lacks := missing()):
        raise ConfigError(lacks)
    config = with_models(request.config, os.environ)
    check(config)
    for key in MODELS.values():
        if name := lookup(config, key):
            check_model(name, key)
    folder, verl = config.run_dir.absolute(), settings(config)
    composed = compose(verl, request.extra) if find_spec("verl") else None
    config = from_anywhere(config)
    run, step = RunFolder(config, folder), last_whole(folder / "checkpoints") or 0
    check_start(config, run)
    steps, mode = config.train.steps, "auto"
    if composed is not None:
        steps, mode = composed.trainer.total_training_steps, composed.trainer.resume_mode
    trained = mode == "auto" and is_trained(config.name, folder, step, steps)
    command = [*python_module("verl.trainer.main_ppo"), "--config-path", str(folder), "--config-name", FILE]
    if request.dry_run:
        if composed is None:
            print("# verl is not installed here: nothing below was checked by it")
        for key, value in verl.items():
            print(f"{key}={value}")
        print(shlex.join([*command, *request.extra]))
        return
    if trained:
        return
    from omegaconf import OmegaConf

    mark = folder / STOP_MARK
    with run.begin(prepare=partial(write_data, config, folder)):
        mark.unlink(missing_ok=True)
        if mode == "auto":  # a step that a stop left untrained now plays other games
            for log in run.logs.glob("verl-*.jsonl"):
                DialogueLog(log, from_step=step).close()
        OmegaConf.save(composed, folder / f"{FILE}.yaml")
        # Ray's workers import a user's game from there, and no module of another's: PYTHONPATH would come before Python's own.
        with signals_end_the_run(), running(command, env=os.environ | {STARTED_IN: str(Path.cwd())}) as process:
            code = process.wait()
    if code:
        why = mark.read_text(encoding="utf-8") if mark.exists() else "its own message is above"
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
