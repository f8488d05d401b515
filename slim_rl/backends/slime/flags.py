"""Flags of slime that depend on the config; scripts/run_matching.sh holds the others.

Each flag has one source: `_of_run` (the run's folder and games) or the config's fields (`slim_rl.config.trainers`).
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl.backends import RESPONSE_TOKENS
from slim_rl.config import Config
from slim_rl.config.trainers import disjoint, values
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError

CONTEXT_TOKENS = 8192  # limit of prompt and response if the config sets none; a prompt has about 1k tokens
EVAL_EVERY = 10  # steps between evaluations if the config sets none
TOKENS_PER_GPU = 9216  # training packs dialogues up to this length; a longer dialogue is a pack by itself
TURN_ADVANTAGES = "slim_rl.rollout.use_turn_advantages"
_CONCURRENCY = 512  # dialogues per engine at once, slime's own default

Flags = dict[str, list[str]]  # flag -> its values


def settled(config: Config) -> Config:
    """Returns the config with the values that it leaves to slime: token limits, steps between evaluations, and trackers."""
    context = config.limits.context_tokens or CONTEXT_TOKENS
    dialogue = config.limits.dialogue_tokens or min(RESPONSE_TOKENS, context)
    report = config.train.report_to
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") == "offline":
        report = tuple(dict.fromkeys((*report, "wandb")))
    every = (config.train.eval_every or EVAL_EVERY) if "eval" in games_files(config) else 0
    limits = {"context_tokens": context, "dialogue_tokens": dialogue}
    return config.changed(limits=limits, train={"report_to": report, "eval_every": every})


def flags_of(config: Config, folder: Path, extra: Flags) -> dict[str, Any]:
    """Returns flag -> value: False or None omits a flag, True gives it without a value.

    Args:
        config: settled config.
        folder: folder of the run.
        extra: flags that the script and the user give.

    Raises:
        ConfigError: Megatron or slime would refuse the batch of all flags together.
        ValueError: a field of the config and `_of_run` set the same flag.
    """
    flags = disjoint(_of_run(config, folder, extra), values(config, "slime"))
    check_batch(parse_flags(words(flags)) | extra, config.seats_trained)
    return flags


def _of_run(config: Config, folder: Path, extra: Flags) -> dict[str, Any]:
    project, reports = os.environ.get("WANDB_PROJECT") or "slim-rl", config.train.report_to
    evaluates = config.train.eval_every > 0
    converted = os.environ.get("TORCH_DIST")
    flags: dict[str, Any] = {
        # a new run starts from it, and a KL term refers to it
        "--ref-load": Path(converted).expanduser().absolute() if converted else config.policy.model,
        "--custom-config-path": folder / "config.yaml",
        "--prompt-data": config.data.train,
        "--eval-prompt-data": ["matching", config.data.eval] if evaluates else None,
        "--n-samples-per-eval-prompt": 1 if evaluates else None,  # many games with one dialogue each: the tightest mean
        "--global-batch-size": config.train.dialogues * config.seats_trained,  # one update per step: on-policy
        # slime counts a step's games as its dialogues, so under self-play the rate would decay in half the steps
        "--lr-decay-iters": config.train.steps if config.selfplay else None,
        "--max-tokens-per-gpu": max(TOKENS_PER_GPU, config.limits.context_tokens or 0),
        "--custom-advantage-function-path": TURN_ADVANTAGES if make_training_reward(config).by_turn else None,
        "--router-policy": router_policy() or None,
    }
    if "--rollout-function-path" in extra:  # its two limits are of groups (ours) and of dialogues (slime's): admit all
        engines = number(extra, "--rollout-num-gpus") // number(extra, "--rollout-num-gpus-per-engine")
        playing = config.slime.steps_under_way * config.train.dialogues
        flags["--sglang-server-concurrency"] = max(_CONCURRENCY, -(-playing // engines))
    if "wandb" in reports:  # without --wandb-key, which slime would log: the key stays in the environment
        group = os.environ.get("WANDB_GROUP") or config.name
        flags |= {"--wandb-project": project, "--wandb-group": group, "--wandb-dir": folder}
    if "tensorboard" in reports:
        flags |= {"--tb-project-name": project, "--tb-experiment-name": config.name}
    return flags


def router_policy() -> str:
    """Returns the policy of the router that keeps a dialogue on one engine; empty if there is none.

    An engine caches the prefixes of its dialogues. Only the router in slime's image has that policy. ROUTER_POLICY overrides the choice.
    """
    if policy := os.environ.get("ROUTER_POLICY"):
        return policy
    try:
        return "consistent_hashing" if "slime" in importlib.import_module("sglang_router").__version__ else ""
    except (ImportError, AttributeError):
        return ""


def words(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags and values as arguments of a command line."""
    return [word for flag, value in flags.items() for word in _words(flag, value)]


def lines(flags: Mapping[str, Any]) -> list[str]:
    """Returns one line per flag, quoted for a shell."""
    return [shlex.join(word) for flag, value in flags.items() if (word := _words(flag, value))]


def _words(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    several = value if isinstance(value, (list, tuple)) else [] if value is True else [value]
    return [flag, *map(str, several)]


def parse_flags(line: Sequence[str]) -> Flags:
    """Returns the arguments of a command line as flag -> values; the last of a repeated flag wins."""
    flags: Flags = {}
    values: list[str] = []
    for word in line:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags[flag] = values = [value] if equals else []
        else:
            values.append(word)
    return flags


def whole(name: str, text: str) -> int:
    """Returns the number that `text` writes in decimal digits. Raises ConfigError, naming the setting, unless it is at least 1."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise ConfigError(f"{name} is {text!r}; it must be a whole number of at least 1.")
    return int(text)


def number(flags: Flags, *names: str) -> int:
    """Returns the product of these flags' numbers; an absent flag counts as 1. Raises ConfigError unless they are numbers."""
    return math.prod(whole(name, (flags.get(name) or ["1"])[0]) for name in names)


def check_batch(flags: Flags, seats: int = 1) -> None:
    """Checks that Megatron can divide the batch over the GPUs, and that slime trains on every dialogue.

    Args:
        flags: all flags, the user's included.
        seats: dialogues per game that are trained on.

    Raises:
        ConfigError: it cannot.
    """
    gpus = number(flags, "--actor-num-nodes", "--actor-num-gpus-per-node")
    split = number(flags, "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    playing, engine = number(flags, "--rollout-num-gpus"), number(flags, "--rollout-num-gpus-per-engine")
    experts = number(
        flags, "--expert-model-parallel-size", "--expert-tensor-parallel-size", "--pipeline-model-parallel-size"
    )
    if gpus % split:
        raise ConfigError(
            f"TP: one copy of the model takes {split} GPUs (tensor × pipeline × context), which do not divide {gpus}."
        )
    if gpus % experts:
        raise ConfigError(
            f"The experts take {experts} GPUs, which do not divide the {gpus} that train; choose a divisor."
        )
    if (playing if "--rollout-num-gpus" in flags else gpus) % engine:
        raise ConfigError(f"ENGINE_GPUS={engine} does not divide the GPUs of inference; choose a divisor.")
    copies = gpus // split
    games, group = number(flags, "--rollout-batch-size"), number(flags, "--n-samples-per-prompt") * seats
    batch, step = number(flags, "--global-batch-size"), copies * number(flags, "--micro-batch-size")
    if games * group % batch:
        raise ConfigError(
            f"--global-batch-size {batch} does not divide the {games} × {group} = {games * group} dialogues of a rollout, and slime "
            "would drop the rest. Choose a divisor."
        )
    if batch % step:
        grain = step // math.gcd(step, group)  # smallest number of games that divides
        fits = [n for n in (games // grain * grain, (games // grain + 1) * grain) if n]
        change = f"train.games_per_step={' or '.join(map(str, fits))}"
        raise ConfigError(
            f"A batch of {batch} dialogues does not divide over {copies} copies of the model ({gpus} GPUs, {split} per copy) in "
            f"micro-batches of {step // copies}. Set "
            f"{change if batch == games * group else f'--global-batch-size to a multiple of {step}'}, or choose other GPUs or TP."
        )
