"""Facts of all keys, gathered from the fields: trainers' names, changeable on resume, decisive for what is learned."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal

from slim_rl.config import Config, parse_config
from slim_rl.config.section import SEED, Key, fields_of

Trainer = Literal["slime", "trl", "verl"]
KEYS = tuple(
    replace(fact, name=name) for name, info in fields_of(Config) for fact in info.metadata if isinstance(fact, Key)
)
MAY_CHANGE = frozenset(key.name for key in KEYS if key.may_change)
_ASIDE = frozenset(key.name for key in KEYS if not key.decides)


def read_keys(config: Config) -> list[str]:
    """Returns the keys that name files or folders that a run reads, those of its partners included."""
    keys, mixture = [key.name for key in KEYS if key.is_read], config.partner.mixture or {}
    for name, member in config.members.items():
        arguments = [f"args.{argument}" for argument in getattr(member.opposite.cls, "reads", ())]
        keys += [f"partner.{key}" for key in arguments]
        if name in mixture:
            keys += [f"partner.mixture.{name}.{key}" for key in (*arguments, "openai.prompt", "openai.cassette")]
    return list(dict.fromkeys(keys))


def from_anywhere(config: Config) -> Config:
    """Returns the same for processes with another working directory: files by absolute paths. The model may be a hub's name."""
    data = config.model_dump(mode="json")
    for key in read_keys(config):
        *sections, name = key.split(".")
        section = reduce(getitem, sections, data)
        if section.get(name) and key != "policy.model":
            section[name] = str(Path(section[name]).absolute())
    return parse_config(data)


def lookup(config: Config, name: str) -> Any:
    """The value of a dotted key; None for one that a mapping lacks."""
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value


def values(config: Config, trainer: Trainer) -> dict[str, Any]:
    """Returns the trainer's names and values of all keys.

    A launcher settles what a config leaves open before, by `Config.changed`: otherwise it could contradict this table. In a short run warm-up
    and decay are shortened too, and a frozen policy has the learning rate 0.
    """
    rise, fall = config.train.slopes
    rate = 0.0 if config.train.frozen else config.train.learning_rate
    train = {"warmup_steps": rise, "lr_decay_steps": fall, "learning_rate": rate}
    config = config.changed(train=train, verl={} if config.train.kl_coef else {"kl": None})
    return {name: convert(lookup(config, key.name)) for key in KEYS for name, convert in key.names(trainer).items()}


def disjoint(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the union of a trainer's settings.

    Raises ValueError if two parts set the same name: one of them would be lost silently.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        if twice := sorted(merged.keys() & part.keys()):
            raise ValueError(f"{', '.join(twice)} is set in two places; keep one of them.")
        merged |= part
    return merged


def shortened(config: Config) -> str:
    """Returns a sentence on the shortened warm-up and decay of a short run; empty if nothing was shortened."""
    train, (rise, fall) = config.train, config.train.slopes
    if (train.warmup_steps, train.lr_decay_steps) == (rise, fall):
        return ""
    return (
        f"train.steps {train.steps} is too few for a warm-up of {train.warmup_steps} and a decay of {train.lr_decay_steps}: they are shortened "
        f"to {rise} and {fall}; raise train.steps, or set train.warmup_steps and train.lr_decay_steps, to change that."
    )


def learned_settings(config: Config) -> dict[str, Any]:
    """Returns the keys that decide what is played and learned, dotted, with values other than the default; and the seed.

    A dialogue log stores them with its run. Two runs are seeds of one arm only if these are equal except `seed` (`analysis.arms`).
    """
    aside = {*_ASIDE, SEED, *({"trl", "slime", "verl"} - {config.train.backend})}
    values = _flat(config.model_dump(mode="json", exclude_defaults=True), aside)
    deciding = {key: _short(value) if isinstance(value, str) else value for key, value in values}
    return {**deciding, SEED: config.seed}


def _flat(data: Mapping[str, Any], aside: set[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        key = f"{prefix}{name}"
        if key in aside:
            continue
        if isinstance(value, Mapping) and value:
            yield from _flat(value, aside, f"{key}.")
        else:
            yield key, value


def _short(path: str) -> str:
    """Returns a path below the working folder relative to it. A cluster names the same file by its absolute path."""
    here = Path.cwd()
    return os.path.relpath(path, here) if Path(path).is_absolute() and Path(path).is_relative_to(here) else path
