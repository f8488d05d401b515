"""Keys of a config that decide what is played and learned, which a dialogue log stores with its run.

Two runs are seeds of one arm only if these are equal except `seed` (`analysis.arms`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slim_rl.config import Config

SEED = "seed"
# Names, places, pace and money; keys that end in a dot are whole sections.
_OTHERS = (
    *("name", "arm", "output_dir", "log.", "arms.", "warmstart.", "environment"),
    *("data.eval", "data.num_eval", "train.save_every", "train.keep_checkpoints", "train.eval_every"),
    *("train.eval_games", "train.eval_before", "train.stop_failures", "train.threads", "train.processes"),
    *("train.micro_batch", "train.report_to", "train.gradient_checkpointing"),
    *("slime.warn_failures", "slime.engine_retry_seconds"),
)
_OPENAI = frozenset(  # keys of an endpoint that shape its replies; others are pace, money, addresses and secrets
    {"model", "prompt", "temperature", "top_p", "max_tokens", "reasoning_effort"}
    | {"note_plan_worth", "malformed_retries", "reply_chars"}
)


def learned_settings(config: Config) -> dict[str, Any]:
    """Returns the keys that decide what is played and learned, dotted, with values other than the default; and the seed."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    backend = config.train.backend
    ignored = (*_OTHERS, *(f"{name}." for name in ("trl", "slime", "verl") if name != backend))
    shaping = {key: value for key, value in _flat(values) if not _is_one_of(key, ignored) and _shapes(key)}
    for key in ("data.train", "policy.model"):
        if key in shaping:
            shaping[key] = _short(str(shaping[key]))
    return {**shaping, SEED: config.seed}


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _is_one_of(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or (name.endswith(".") and key.startswith(name)) for name in names)


def _shapes(key: str) -> bool:
    _, openai, rest = key.partition(".openai.")
    return not openai or rest.partition(".")[0] in _OPENAI


def _short(path: str) -> str:
    """Returns a path below the working folder relative to it. A cluster names the same file by its absolute path."""
    here = Path.cwd()
    return os.path.relpath(path, here) if Path(path).is_absolute() and Path(path).is_relative_to(here) else path
