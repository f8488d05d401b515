"""Starts verl's PPO trainer: one config becomes one YAML file for hydra, and verl's own trainer runs unchanged.

    slim-rl train CONFIG --backend verl [--set key=value …] [verl's key=value …]

`--set` changes a key of slim_rl's config. A bare key=value goes to verl unchanged and has the last word, unless its key is one of
the config's own. POLICY_MODEL, REF_MODEL and CRITIC_MODEL in the environment say where the three models start.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from slim_rl import bundled
from slim_rl.backends import RESPONSE_TOKENS, Request, is_trained, say, say_at_the_start
from slim_rl.backends.checkpoints import last_whole
from slim_rl.backends.cost import cost_report
from slim_rl.backends.gpus import find_gpus
from slim_rl.backends.ready import check_environment, check_games, check_model, try_partner
from slim_rl.backends.verl.compose import Overrides, check_composed, compose
from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.names import PLAYED, REFERENCE_VARIABLE, STOP_MARK, TURN_CREDIT
from slim_rl.config import Config, DataConfig, load_config, parse_config
from slim_rl.config.named import same
from slim_rl.config.trainers import KEYS, disjoint, lookup, shortened
from slim_rl.config.trainers import values as table_values
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.requirements import check_training
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import STARTED_IN, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.files import write_atomically
from slim_rl.policies import unreadable
from slim_rl.processes import python_module, running, signals_end_the_run
from slim_rl.runs import check_same, claimed

HERE = Path(__file__).parent
FILE = "verl"  # of the run's folder, with .yaml: what hydra is given
SHARED = {  # verl's names of keys that are the config's by another name, with the same values
    name: key.name for key in KEYS if len(key.verl) == 1 for name in key.verl if key.verl[name] is same
}
MODELS = {"POLICY_MODEL": "policy.model", "REF_MODEL": "verl.reference_model", "CRITIC_MODEL": "verl.critic_model"}


def start(request: Request) -> None:
    """Writes the run's files, starts `verl.trainer.main_ppo` and waits for its end. It resumes from its last checkpoint. A dry run
    checks the same, prints the file's values and the command, and writes nothing; it needs no GPU.

    Raises:
        SlimError: this machine lacks something, the config asks for what verl cannot do, verl refuses a key, the partner cannot be made,
            or the training ended with an error.
    """
    request.no_fresh()
    if not request.dry_run and (lacks := missing(request.extra)):
        raise ConfigError(lacks)
    ours, theirs = _split(request.extra)
    config = with_models(load_config(request.path, [*request.overrides, *ours]), os.environ)
    notes = [check_model(name, key) for key in MODELS.values() if (name := lookup(config, key))]
    if config.train.lora is not None and find_spec("transformers") is not None:
        _check_adapters(config)
    overrides = build_overrides(config, theirs)
    folder = run_dir(config)
    command = [*python_module("verl.trainer.main_ppo"), "--config-path", str(folder), "--config-name", FILE]
    command += overrides.extra
    config = config.from_anywhere()
    check_same(folder / "config.yaml", config)
    check_games(config)
    try_partner(config)
    if cost := cost_report(config, folder=folder):
        print(f"partner: {cost}", file=sys.stderr)
    step = last_whole(folder / "checkpoints")
    if step is not None and step < config.train.steps:
        say(f"{config.name} resumes from step {step} of {config.train.steps}, its last checkpoint")
    if request.dry_run and find_spec("verl") is None:
        print("# verl is not installed here: nothing below was checked by it")
    else:
        composed = compose(overrides)
        check_composed(config, composed)
    for note in filter(None, (*notes, shortened(config))):
        say(note)
    if request.dry_run:
        print(f"# {folder / FILE}.yaml, over verl's own ppo_trainer.yaml:")
        for key, value in overrides.values.items():
            print(f"#   {key}={_shown(value)}")
        print(shlex.join(command))
        return
    trainer = composed.trainer  # with verl's own overrides
    if step is not None and step >= trainer.total_training_steps and trainer.resume_mode == "auto":
        say(is_trained(config, folder))
        return
    say_at_the_start(config)
    with claimed(folder, config, partial(write_data, config, folder)):
        (folder / STOP_MARK).unlink(missing_ok=True)
        write_atomically(folder / f"{FILE}.yaml", overrides.yaml())
        # Ray's workers import a user's game from there, and no module of another's: PYTHONPATH would come before Python's own.
        with signals_end_the_run(), running(command, env=os.environ | {STARTED_IN: str(Path.cwd())}) as process:
            code = process.wait()
    if code:
        raise SlimError(f"verl stopped with exit code {code}; its own message is above.")


def _check_adapters(config: Config) -> None:
    """Raises ConfigError if the model, made without its weights, cannot have the adapters of `train.lora`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from slim_rl.policies.lora import check_adapters

    assert config.train.lora is not None
    with (
        unreadable(f"policy.model '{config.policy.model}' has no config.json of a language model"),
        torch.device("meta"),
    ):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(bundled.model(config.policy.model)))
    check_adapters(model, config.train.lora.target_modules)


def missing(words: Sequence[str]) -> str:
    """Returns what this machine lacks to start verl."""
    if find_spec("verl") is None:
        other = "Python 3.13 has no verl 0.9.1; use Python 3.11 or 3.12." if sys.version_info >= (3, 13) else ""
        return other or "verl is not installed here: pip install 'slim-rl[verl]'."
    if not find_gpus() and not os.environ.get("RAY_ADDRESS"):
        return "this machine has no GPU, and verl trains on GPUs only."
    return ""


def _shown(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=sys.maxsize)
    return text.removesuffix("...\n").strip()


def with_models(config: Config, environment: Mapping[str, str]) -> Config:
    """Returns the config with its models resolved.

    They come from the environment variables, from a folder shipped with slim_rl, or from keys in `verl.overrides` that are the config's by
    another name.
    """
    check_environment(MODELS, environment)
    if shared := {name: value for name, value in config.verl.overrides.items() if name in SHARED}:
        others = {name: value for name, value in config.verl.overrides.items() if name not in SHARED}
        changes = [f"{SHARED[name]}={json.dumps(value)}" for name, value in shared.items()]
        config = parse_config(config.model_dump(mode="json"), [*changes, f"verl.overrides={json.dumps(others)}"])
    sections = {"policy": {"model": bundled.model(config.policy.model)}}
    for variable, key in MODELS.items():
        if environment.get(variable):
            section, name = key.split(".")
            sections.setdefault(section, {})[name] = environment[variable]
    return config.changed(**sections)


def run_dir(config: Config) -> Path:
    """Returns the run's absolute folder: config.yaml, data/ (the games as verl reads them), dialogue log, checkpoints/."""
    return config.run_dir.absolute()


def build_overrides(config: Config, extra: Sequence[str] = ()) -> Overrides:
    """Returns verl's settings for a config: the table of keys, then what a dialogue needs, then `verl.overrides`.

    Raises:
        ConfigError: the config asks for what verl cannot do.
        ValueError: two of our own parts set the same key.
    """
    check(config)
    train = config.train
    settled = config.changed(
        train={"eval_every": (train.eval_every or train.save_every) if "eval" in games_files(config) else 0},
        verl={"critic_model": config.verl.critic_model or config.policy.model, **_estimator(config)},
        limits={"dialogue_tokens": _response_tokens(config)},
    )
    ours = disjoint(table_values(settled, "verl"), _models(config), _data(config), _rollout(config), _trainer(config))
    return Overrides(ours | config.verl.overrides, list(extra))


def _estimator(config: Config) -> dict[str, Any]:
    """Returns the advantage estimator for turns or seats with their own advantages: verl's GRPO would give both the same."""
    training_reward = make_training_reward(config)
    if training_reward.by_turn:
        return {"adv_estimator": TURN_CREDIT}
    seats_differ = config.selfplay and training_reward.takes_the_step
    return {"adv_estimator": PLAYED} if seats_differ and config.verl.adv_estimator == "grpo" else {}


def check(config: Config) -> None:
    """Raises ConfigError if verl cannot do what the config asks for."""
    check_training(config)
    train, training_reward = config.train, make_training_reward(config)
    if training_reward.by_turn and (
        config.verl.adv_estimator != "grpo" or (train.kl_coef and config.verl.kl == "reward")
    ):
        asked = (
            f"verl.adv_estimator={config.verl.adv_estimator}"
            if config.verl.adv_estimator != "grpo"
            else "verl.kl=reward"
        )
        raise ConfigError(
            f"train.reward={train.reward} gives turns their own advantages, in place of what {asked} would make of rewards; leave one out."
        )
    if train.lora is not None and train.lora.dropout:
        raise ConfigError(f"train.lora.dropout is {train.lora.dropout:g}, which verl does not have; set it to 0.")
    if train.lora is not None and config.verl.reference_model not in (None, config.policy.model):
        raise ConfigError(
            f"verl.reference_model is {config.verl.reference_model}, but with train.lora verl takes the policy without its adapters as the "
            "reference; leave one of the two out."
        )
    if config.verl.mode == "single_turn" and (
        not training_reward.as_game or training_reward.takes_the_step or train.exploring_starts
    ):
        raise ConfigError(
            "verl.mode is single_turn, which plays no dialogues, so train.reward and train.exploring_starts "
            "would have no effect; set verl.mode to multi_turn, or leave them at their defaults."
        )
    if config.train.lr_schedule in ("linear", "wsd"):
        raise ConfigError(
            f"train.lr_schedule is {config.train.lr_schedule}, which verl does not have; choose constant or cosine."
        )
    if config.verl.mode == "single_turn" and environment_class(config.environment).seats != 1:
        raise ConfigError(
            "verl.mode is single_turn, but the game is one for two; choose a one-seat environment, for the matching game "
            "environment: slim_rl.games.matching.planning.PlanningEnv."
        )


def _models(config: Config) -> dict[str, Any]:
    verl, betas = config.verl, [config.train.adam_beta1, config.train.adam_beta2]
    values: dict[str, Any] = {
        "actor_rollout_ref.actor.optim.betas": betas,
        "critic.optim.betas": betas,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.external_lib": "slim_rl.backends.verl.plugin",
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": _sequence_tokens(config),
        "critic.model.use_remove_padding": True,
        "critic.ppo_max_token_len_per_gpu": 2 * _sequence_tokens(config),
        "data.apply_chat_template_kwargs.enable_thinking": config.policy.thinking,
        **dict.fromkeys(
            (f"{part}.trust_remote_code" for part in ("data", "critic.model", "actor_rollout_ref.model")), False
        ),
    }
    if verl.reference_model and verl.reference_model != config.policy.model:
        values[f"ray_kwargs.ray_init.runtime_env.env_vars.{REFERENCE_VARIABLE}"] = verl.reference_model
    if config.train.lora is not None:
        lora = config.train.lora
        values |= {
            "actor_rollout_ref.model.lora_rank": lora.r,
            "actor_rollout_ref.model.lora_alpha": lora.alpha,
            "actor_rollout_ref.model.target_modules": lora.target_modules,
            "actor_rollout_ref.rollout.load_format": "safetensors",
        }
    return values


def _data(config: Config) -> dict[str, Any]:
    folder = run_dir(config) / "data"
    held_out = "eval" in games_files(config)
    return {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / ("eval.parquet" if held_out else "train.parquet")),
        "data.filter_overlong_prompts": True,
        "data.dataloader_num_workers": 2,
        "trainer.val_before_train": held_out,
    }


def _rollout(config: Config) -> dict[str, Any]:
    single = config.verl.mode == "single_turn"
    loop = "single_turn_agent" if single else "slim_rl_selfplay" if config.selfplay else "slim_rl_dialogue"
    rollout = "actor_rollout_ref.rollout"
    return {
        "slim_rl.config": str(run_dir(config) / "config.yaml"),
        f"{rollout}.agent.agent_loop_config_path": str(HERE / "agents.yaml"),
        f"{rollout}.agent.default_agent_loop": loop,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.max_model_len": _sequence_tokens(config),
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.val_kwargs.temperature": config.policy.temperature,
        f"{rollout}.val_kwargs.top_p": config.policy.top_p,
        f"{rollout}.val_kwargs.do_sample": True,
        "reward.num_workers": 1,
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "matching",
        "reward.reward_manager.module.path": "pkg://slim_rl.backends.verl.reward",
    }


def _trainer(config: Config) -> dict[str, Any]:
    # Each session of self-play gives two rows to learn from; all of a step's rows make one update.
    mini_batch = config.train.games_per_step * config.seats_trained
    return {
        "actor_rollout_ref.actor.ppo_mini_batch_size": mini_batch,
        "critic.ppo_mini_batch_size": mini_batch,
        "trainer.total_epochs": config.train.steps,  # more than enough: a step is at most an epoch
        "trainer.project_name": "slim_rl",
        "trainer.experiment_name": config.name,
        "trainer.default_local_dir": str(run_dir(config) / "checkpoints"),
        "trainer.checkpoint_callback_class": "slim_rl.backends.verl.stop.SaveBeforeStop",
        # verl's own 8 processes each are for whole nodes; every storage unit takes a CPU of Ray's.
        "actor_rollout_ref.rollout.agent.num_workers": 4,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2,
    }


def _response_tokens(config: Config) -> int:
    limits = config.limits
    wanted = limits.dialogue_tokens or RESPONSE_TOKENS
    if limits.context_tokens is None:
        return wanted
    left = limits.context_tokens - config.verl.prompt_tokens
    if left < 1:
        raise ConfigError(
            "limits.context_tokens leaves no room for a response after verl.prompt_tokens; raise the first or lower the second."
        )
    return min(wanted, left)


def _sequence_tokens(config: Config) -> int:
    return config.verl.prompt_tokens + _response_tokens(config)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits key=value arguments into changes of slim_rl's config and of verl's.

    A key of verl's that is a key of the config by another name becomes that one, so that whatever depends on it changes too.

    Raises:
        ConfigError: a word is no key=value, or its key means one thing here and another to verl.
    """
    ours, theirs = [], []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or word.startswith("-"):
            raise ConfigError(f"'{word}' is neither an option nor key=value, such as trainer.total_training_steps=9.")
        if _is_ours(name) and any(name in key.verl for key in KEYS):
            raise ConfigError(f"'{word}' names a key of slim_rl and another of verl; give --set {word} for the first.")
        if _is_ours(name):
            ours.append(word)
        elif name.lstrip("+") in SHARED:
            ours.append(f"{SHARED[name.lstrip('+')]}={value}")
        else:
            theirs.append(word)
    return ours, theirs


def _is_ours(key: str) -> bool:
    section, _, name = key.partition(".")
    if section == "data":  # the one section that verl has by that name too
        return name in DataConfig.model_fields
    return section in Config.model_fields
