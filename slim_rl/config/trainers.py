"""The config's keys by their trainers' names, gathered from the fields. The launchers build their commands from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

from pydantic import BaseModel

from slim_rl.config import Config
from slim_rl.config.named import Key

Trainer = Literal["slime", "trl", "verl"]


def _keys(section: BaseModel, path: str = "") -> Iterator[Key]:
    for name, info in type(section).model_fields.items():
        yield from (replace(fact, name=f"{path}{name}") for fact in info.metadata if isinstance(fact, Key))
        if isinstance(inner := getattr(section, name), BaseModel):
            yield from _keys(inner, f"{path}{name}.")


KEYS: tuple[Key, ...] = tuple(_keys(Config()))
MAY_CHANGE = frozenset(key.name for key in KEYS if key.may_change)


def lookup(config: Config, name: str) -> Any:
    """The value of a dotted key."""
    return attrgetter(name)(config)


def values(config: Config, trainer: Trainer) -> dict[str, Any]:
    """Returns the trainer's names and values of all keys.

    A launcher settles what a config leaves open before, by `Config.changed`: otherwise it could contradict this table. In a short run warm-up
    and decay are shortened too, and a frozen policy has the learning rate 0.
    """
    rise, fall = config.train.slopes
    rate = 0.0 if config.train.frozen else config.train.learning_rate
    train = {"warmup_steps": rise, "lr_decay_steps": fall, "learning_rate": rate}
    config = config.changed(train=train, verl={} if config.train.kl_coef else {"kl": None})
    return {name: convert(lookup(config, key.name)) for key in KEYS for name, convert in getattr(key, trainer).items()}


def disjoint(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the union of a trainer's settings.

    Raises ValueError if two parts set the same name: one of them would be lost silently.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        if twice := sorted(merged.keys() & part.keys()):
            raise ValueError(
                f"{', '.join(twice)} is set in two places; leave it to the table of keys, or to one launcher's part."
            )
        merged |= part
    return merged


def shortened(config: Config) -> str:
    """Returns a sentence on the shortened warm-up and decay of a short run; empty if nothing was shortened."""
    train = config.train
    if (train.warmup_steps, train.lr_decay_steps) == train.slopes:
        return ""
    rise, fall = train.slopes
    both = train.lr_decay_steps > 0
    asked = f"a warm-up of {train.warmup_steps}" + f" and a decay of {train.lr_decay_steps}" * both
    taken = f"they are shortened to {rise} and {fall}" if both else f"it is shortened to {rise}"
    keys = "train.warmup_steps" + " and train.lr_decay_steps" * both
    return (
        f"train.steps {train.steps} is too few for {asked}: {taken}; raise train.steps, or set {keys}, to change that."
    )
