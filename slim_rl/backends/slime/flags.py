"""Flags of slime that depend on the config; scripts/run_matching.sh holds the others.

Each flag has one source: `_of_run` (the run's folder and games) or the config's fields (`slim_rl.config.trainers`).
"""

import ast
import difflib
import importlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl.backends import RESPONSE_TOKENS
from slim_rl.config import Config
from slim_rl.config.trainers import disjoint, values
from slim_rl.dialogue.games_file import games_files
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError

CONTEXT_TOKENS = 8192  # limit of prompt and response if the config sets none; a prompt has about 1k tokens
EVAL_EVERY = 10  # steps between evaluations if the config sets none
TOKENS_PER_GPU = 9216  # training packs dialogues up to this length; a longer dialogue is a pack by itself
_NEAR = 0.92  # similarity to a flag of slime's that none of Megatron-LM's and SGLang's flags reaches
_IN_UPDATES = ("--lr-decay-iters", "--lr-warmup-iters", "--lr-wsd-decay-iters")  # the config counts them in steps
TURN_ADVANTAGES = "slim_rl.rollout.use_turn_advantages"

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


def flags_of(config: Config, folder: Path, updates: int = 1) -> dict[str, Any]:
    """Returns flag -> value: False or None omits a flag, True gives it without a value.

    Args:
        config: settled config.
        folder: folder of the run.
        updates: number per step.

    Raises:
        ValueError: a field of the config and `_of_run` set the same flag.
    """
    flags = disjoint(_of_run(config, folder), values(config, "slime"))
    return flags | {flag: updates * flags[flag] for flag in _IN_UPDATES if flags.get(flag)}


def _of_run(config: Config, folder: Path) -> dict[str, Any]:
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
        "--rollout-batch-size": config.train.games_per_step + config.slime.spare_games,
        "--global-batch-size": config.train.dialogues * config.seats_trained,  # one update per step: on-policy
        # slime itself would count the games that it plays, not those that it trains on
        "--lr-decay-iters": config.train.steps,
        "--max-tokens-per-gpu": max(TOKENS_PER_GPU, config.limits.context_tokens or 0),
        "--custom-advantage-function-path": TURN_ADVANTAGES if make_training_reward(config).by_turn else None,
        "--router-policy": router_policy() or None,
    }
    if "wandb" in reports:
        group = os.environ.get("WANDB_GROUP") or config.name
        flags |= {"--wandb-project": project, "--wandb-group": group, "--wandb-dir": folder}
    if "tensorboard" in reports:
        flags |= {"--tb-project-name": project, "--tb-experiment-name": config.name}
    return flags


def check_written(flags: Flags, slime: Path | None) -> None:
    """Raises ConfigError for a flag that is nearly one of slime's, or a value that slime's parser does not know.

    Reads slime's sources: its parser needs Megatron-LM and SGLang too, and checks the whole command line when the job starts.
    """
    known: dict[str, list[str]] = {}
    for file in (slime / "slime").rglob("arguments.py") if slime is not None else ():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                choices = next((each.value for each in node.keywords if each.arg == "choices"), None)
                values = list(map(str, ast.literal_eval(choices))) if isinstance(choices, ast.List) else []
                known |= {str(word.value): values for word in node.args if isinstance(word, ast.Constant)}
    for flag, given in flags.items():
        if flag not in known and (near := difflib.get_close_matches(flag, known, 1, _NEAR)):
            raise ConfigError(f"{flag} is not a flag of slime's; did you mean {near[0]}?")
        if (allowed := known.get(flag)) and (wrong := [value for value in given if value not in allowed]):
            raise ConfigError(f"{flag} {' '.join(wrong)} is none that slime has; choose {', '.join(allowed)}.")


def router_policy() -> str:
    """Returns the router's policy that keeps a dialogue on one engine, for its prefix cache; empty without one.

    Only the router in slime's image has that policy. ROUTER_POLICY overrides the choice.
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
