"""Base class of a config's sections, facts of a key at its field (`Key`), and the names it knows (`NAMES`)."""

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

from slim_rl.errors import ConfigError, nearest

SEED = "seed"
NAMES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
# Keys of earlier versions -> what to write instead
GONE = {
    **{old: f"write {new}" for old, new in NAMES["renamed"].items()},
    **NAMES["gone"],
    **{
        f"{who}.openai.{key}": what for who in ("partner", "policy") for key, what in NAMES["gone_of_endpoints"].items()
    },
}


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,  # YAML reads name: 7 as a number
    )

    def changed(self, **values: Any) -> Self:
        """Returns a copy with other values, which are checked when a run starts.

        For a nested section, the value is a mapping of its keys that change. Raises ConfigError for an unknown key.
        """
        new = {}
        for name, value in values.items():
            if name not in type(self).model_fields:
                raise ConfigError(f"'{name}' is not a key slim_rl knows; {meant(name, type(self))}.")
            old, kind = getattr(self, name), type(self).model_fields[name].annotation
            if isinstance(value, str) and Path in (kind, *typing.get_args(kind)):
                value = Path(value)
            new[name] = old.changed(**value) if isinstance(old, Section) and isinstance(value, Mapping) else value
        return self.model_copy(update=new)


# Annotation of a list that may be written as its only value
OneOrMore = BeforeValidator(lambda value: [value] if isinstance(value, str | int | float) else value)

Names = Mapping[str, Callable[[Any], Any]]


def same(value: Any) -> Any:
    """Returns the config's value for a trainer that takes it as it is."""
    return value


@dataclass(frozen=True, slots=True)
class Key:
    """Facts about one key of the config.

    A key without a trainer's name is used by slim_rl's dialogue loop, or combined with others by the trainer's launcher; its note says which.

    Attributes:
        slime: its launch flags and what each is given: False or None leaves the flag out, True gives it without a value.
        trl: fields of TRL's GRPOConfig.
        verl: hydra keys. The names of each trainer are words if it takes the config's value as it is; otherwise each has a converter.
        note: what a reader must know beyond the field's own description.
        may_change: a resumed run may have another value.
        decides: it decides what is played or learned, so that two runs with other values are not seeds of one arm.
        is_read: it names a file or folder that a run reads.
        name: dotted, as in a config file; empty at its field.
    """

    slime: str | Names = ""
    trl: str | Names = ""
    verl: str | Names = ""
    note: str = ""
    may_change: bool = False
    decides: bool = True
    is_read: bool = False
    name: str = ""

    def names(self, trainer: Literal["slime", "trl", "verl"]) -> Names:
        """Returns a trainer's names of the key, each with the converter of its value."""
        names: str | Names = getattr(self, trainer)
        return dict.fromkeys(names.split(), same) if isinstance(names, str) else names


ASIDE = Key(decides=False)  # names, places, pace and money
PACE = Key(may_change=True, decides=False)
# transformers' own constant knows no warm-up
TRL_SCHEDULE = {"wsd": "warmup_stable_decay", "constant": "constant_with_warmup"}
TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}
VERL_LOSS = {"sequence": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields the dotted names and fields of a section's keys, and of those in the sections below it."""
    for name, info in model.model_fields.items():
        yield prefix + name, info
        for kind in (info.annotation, *typing.get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields_of(kind, f"{prefix}{name}.")


def meant(name: str, model: type[BaseModel], prefix: str = "") -> str:
    """Returns how to correct an unknown key: what replaced it, what a trainer calls so, a similar one, or none."""
    section, _, last = name.rpartition(".")
    if instead := GONE.get(prefix + name):
        return instead
    trained = not section.startswith("partner")  # a partner has its own model, temperature and tokens
    if elsewhere := NAMES["elsewhere"].get(name) or (trained and NAMES["elsewhere"].get(last)):
        return f"did you mean {elsewhere}?"
    for key, info in fields_of(model) if trained else ():
        facts = [fact for fact in info.metadata if isinstance(fact, Key)]
        names = [name for fact in facts for name in (*fact.names("slime"), *fact.names("trl"))]
        if last in (name.lstrip("-").replace("-", "_") for name in names):
            return f"did you mean '{prefix}{key}'?"
    known = {key: key.rpartition(".")[2] for key, _ in fields_of(model)}
    beside = {key: end for key, end in known.items() if key.rpartition(".")[0] == section}
    others = {key: end for key, end in known.items() if len(end) > 3}  # a short name is near to too many
    below = {key: end for key, end in known.items() if section and key.startswith(f"{section}.")}
    for some in (beside, below, others):
        if near := nearest(last, some.values()):
            key = min((key for key, end in some.items() if end == near), key=lambda key: key.count("."))
            return f"did you mean '{prefix}{key}'?"
    return "remove it or correct its spelling"


def without_gone(data: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], list[str]]:
    """Returns a nested configuration of an earlier version without the keys that are gone, and these keys."""
    left, gone = {}, []
    for name, value in data.items():
        if f"{prefix}{name}" in GONE:
            gone.append(f"{prefix}{name}")
        elif isinstance(value, Mapping):
            left[name], below = without_gone(value, f"{prefix}{name}.")
            gone += below
        else:
            left[name] = value
    return left, gone
