"""Base class of every section of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

from slim_rl.errors import ConfigError, nearest

# Keys of earlier versions -> today's, with the same values
MOVED = {
    "partner.doubts": "partner.explain_rejections",
    "slime.engine_patience": "slime.engine_retry_seconds",
    "train.payment": "train.reward",
    "train.payment_args": "train.reward_args",
    "warmstart.player.minds_price": "warmstart.player.cost_aware_share",
    "warmstart.player.about_plan": "warmstart.player.ask_about_plan_share",
}
# Names of other trainers and of earlier versions -> today's key
FORMER = {
    **{former.rpartition(".")[2]: key for former, key in MOVED.items()},
    **dict.fromkeys(("num_epochs", "epochs", "num_train_epochs", "max_steps", "num_steps"), "train.steps"),
    **dict.fromkeys(("keep_last_n", "save_total_limit", "keep_last"), "train.keep_checkpoints"),
    **dict.fromkeys(("output_dir", "out_dir", "save_dir"), "output_dir"),
    "question_price": "train.reward_args.price, with train.reward: price",
    "credit": "train.reward, with turn_credit or expected_credit",
    "credit_lambda": "train.reward_args.decay, with train.reward: turn_credit",
    **dict.fromkeys(("lr",), "train.learning_rate"),
    **dict.fromkeys(("batch_size", "train_batch_size"), "train.games_per_step"),
    **dict.fromkeys(("num_generations", "n_samples_per_prompt"), "train.group_size"),
    **dict.fromkeys(("beta", "kl_loss_coef"), "train.kl_coef"),
    **dict.fromkeys(("model_name", "model_name_or_path"), "policy.model"),
}


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _one_for_a_list(cls, data: Any) -> Any:
        """Turns one value into a list if the key takes a list and not that value."""
        if not isinstance(data, Mapping):
            return data
        return {
            name: [value]
            if isinstance(value, str | int | float) and name in cls.model_fields and _lists(cls, name, value)
            else value
            for name, value in data.items()
        }

    def changed(self, **values: Any) -> Self:
        """Returns a copy with other values, which are checked when a run starts.

        For a nested section, the value is a mapping of its keys that change. Raises ConfigError for an unknown key.
        """
        new = {}
        for name, value in values.items():
            if name not in type(self).model_fields:
                raise ConfigError(f"'{name}' is not a key slim_rl knows; {meant(name, [*type(self).model_fields])}.")
            old = getattr(self, name)
            new[name] = old.changed(**value) if isinstance(old, Section) and isinstance(value, Mapping) else value
        return self.model_copy(update=new)

    def absolute(self) -> Self:
        """A copy in which every path is absolute."""
        return self.model_copy(
            update={name: value.absolute() for name, value in self if isinstance(value, Section | Path)}
        )


def current_key(name: str) -> str:
    """Returns today's name of a dotted key of an earlier version."""
    for former, key in MOVED.items():
        if name == former or name.startswith(f"{former}."):
            return key + name[len(former) :]
    return name


def current_keys(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a nested configuration of an earlier version with today's keys."""
    renamed = {}
    for name, value in data.items():
        key = current_key(current_key(f"{prefix}{name}").removeprefix(prefix))  # an arm's keys are dotted names
        renamed[key] = current_keys(value, f"{prefix}{key}.") if isinstance(value, Mapping) else value
    return renamed


def meant(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Returns how to correct an unknown key: its current name, a similar one, or to remove it."""
    if former := FORMER.get(name.rpartition(".")[2]):
        return f"today's name is {former}"
    return f"did you mean '{prefix}{near}'?" if (near := nearest(name, known)) else "remove it or correct its spelling"


def _lists(section: type[BaseModel], name: str, value: str | float) -> bool:
    """Returns True if the key takes a list, and `value` alone is not a valid value."""
    kind = section.model_fields[name].annotation
    kinds = (kind,) if get_origin(kind) in (list, tuple) else get_args(kind)
    others = [each for each in kinds if get_origin(each) not in (list, tuple) and each is not type(None)]
    words = [word for each in others if get_origin(each) is Literal for word in get_args(each)]
    only_words = all(get_origin(each) is Literal for each in others)
    return len(others) < len(kinds) and only_words and value not in words
