"""Metadata of a config field: its trainers' names, and whether a run may change it on resume.

Each name comes with the converter from the config's value to the trainer's. A key without a trainer's name is used by slim_rl's
dialogue loop, or combined with others by the trainer's launcher; its note says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Names = Mapping[str, Callable[[Any], Any]]


def same(value: Any) -> Any:
    """Returns the config's value for a trainer that takes it as it is."""
    return value


@dataclass(frozen=True, slots=True)
class Key:
    """Facts about one key of the config.

    Attributes:
        name: dotted, as in a config file; empty at its field.
        slime: its launch flags and what each is given: False or None leaves the flag out, True gives it without a value.
        trl: fields of TRL's GRPOConfig.
        verl: hydra keys.
        note: what a reader must know beyond the field's own description.
        may_change: a resumed run may have another value: it decides nothing that a dialogue may hold, or that is learned of it.
    """

    name: str = ""
    slime: Names = field(default_factory=dict)
    trl: Names = field(default_factory=dict)
    verl: Names = field(default_factory=dict)
    note: str = ""
    may_change: bool = False


def named(
    slime: str | Names = "",
    trl: str | Names = "",
    verl: str | Names = "",
    note: str = "",
    may_change: bool = False,
) -> Key:
    """Returns a field's metadata.

    A trainer's names are words if it takes the value as it is; otherwise each has a converter.
    """
    return Key("", _converted(slime), _converted(trl), _converted(verl), note, may_change)


def _converted(names: str | Names) -> Names:
    return dict.fromkeys(names.split(), same) if isinstance(names, str) else names


# transformers' own constant knows no warm-up
TRL_SCHEDULE = {"wsd": "warmup_stable_decay", "constant": "constant_with_warmup"}
TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}
VERL_LOSS = {"sequence": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
