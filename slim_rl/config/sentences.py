"""Error messages for invalid configs, in one sentence: where, what, and what was probably meant."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from slim_rl.config.section import FORMER
from slim_rl.errors import ConfigError, did_you_mean, nearest
from slim_rl.formats import without_passwords

_LONGEST = 200  # characters of a value or a key that a sentence repeats


def checked(model: type[BaseModel], value: Any, section: str) -> BaseModel:
    """The section of that name, as the game's own model has it. Raises ConfigError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(sentence_of(error, model, section)) from error


def sentence_of(error: ValidationError, model: type[BaseModel], section: str = "") -> str:
    """Returns one sentence on a validation error. `section`: dotted name of `model` in the config."""
    prefix = f"{section}." if section else ""
    parts = []
    for item in _as_meant(error.errors()):
        name = ".".join(map(str, item["loc"]))
        where = f"{prefix}{name}".removesuffix(".")
        if item["type"] == "extra_forbidden":
            former = FORMER.get(name.rpartition(".")[2])
            near = _nearest_key(_short(name), list(keys_of(model)))
            fix = f"did you mean '{prefix}{near}'?" if near else "remove it or correct its spelling"
            fix = f"today's name is {former}" if former else fix
            parts.append(f"'{_short(where)}' is not a key slim_rl knows; {fix}")
        else:
            message = item["msg"].removeprefix("Value error, ")
            choices = re.findall("'([^']+)'", message) if item["type"] == "literal_error" else ()
            # What validators say of a whole section names its keys; that it is no mapping says nothing of where.
            if isinstance(item["input"], dict) and item["type"] == "value_error":
                message = f"{where}: {message}" if item["loc"] else message
            elif item["loc"] or (section and item["type"] == "model_type"):
                got = f"(got {_short(repr(item['input']))}){did_you_mean(_short(str(item['input'])), choices)}"
                message = f"{where}: {message} {got}"
            parts.append(message)
    sentence = without_passwords("; ".join(parts))
    return sentence if sentence.endswith("?") else f"{sentence}."


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


# How pydantic names one of a value's several types, between the value's key and what is wrong within it.
_TYPE = re.compile(r"bool|int|float|str|constrained-\w+|\w+\[.*\]")
_OF_ANOTHER_TYPE = ("_type", "_parsing", "literal_error")


def _as_meant(errors: Iterable[Any]) -> Iterator[Any]:
    """Yields one error per value, although a value of several possible types has one error for each type.

    If the value is of one of the types, its error is the one for that type; otherwise all errors become one.
    """
    by_key: dict[tuple[Any, ...], list[Any]] = {}
    for item in errors:
        at = next((at for at, part in enumerate(item["loc"]) if isinstance(part, str) and _TYPE.fullmatch(part)), None)
        key = item["loc"] if at is None else item["loc"][:at]
        by_key.setdefault(key, []).append(item if at is None else {**item, "loc": key + item["loc"][at + 1 :]})
    for items in by_key.values():
        wrong = [item for item in items if not item["type"].endswith(_OF_ANOTHER_TYPE)]
        if wrong or len(items) == 1:
            yield from wrong or items
        else:
            first, *others = items
            alternatives = [first["msg"], *(item["msg"].removeprefix("Input should be ") for item in others)]
            choices = [item for item in items if item["type"] == "literal_error"]
            yield {**first, **(choices[0] if choices else {}), "msg": " or ".join(alternatives)}


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of a section's keys and of those in the sections below it."""
    for name, info in model.model_fields.items():
        yield prefix + name
        for kind in (info.annotation, *typing.get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys_of(kind, f"{prefix}{name}.")


def texts_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Yields (dotted name, True if it may be null) of keys whose value is a string or a path."""
    for name, info in model.model_fields.items():
        kinds = typing.get_args(info.annotation) or (info.annotation,)
        if set(kinds) <= {str, Path, type(None)}:
            yield prefix + name, type(None) in kinds
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from texts_of(kind, f"{prefix}{name}.")


def _nearest_key(name: str, known: Sequence[str]) -> str:
    """Returns the key that was probably meant: a similar one in the same section, or one elsewhere; else nothing."""
    section, _, last = name.rpartition(".")
    names = {key: key.rpartition(".")[2] for key in known}
    beside = [key for key in known if key.rpartition(".")[0] == section]
    for some in (beside, [key for key in known if len(names[key]) > 3]):  # a short name is near to too many
        if near := nearest(last, [names[key] for key in some]):
            return next(key for key in some if names[key] == near)
    return ""
