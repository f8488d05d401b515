"""What every part of a config is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _one_for_a_list(cls, data: Any) -> Any:
        """One value stands for a list of it, where a key takes a list and not that value."""
        if not isinstance(data, Mapping):
            return data
        return {
            name: [value]
            if isinstance(value, str | int | float) and name in cls.model_fields and _lists(cls, name, value)
            else value
            for name, value in data.items()
        }

    def changed(self, **values: Any) -> Self:
        """A copy with other values, unchecked; for a section within it, a mapping of those of its keys that change."""
        new = {}
        for name, value in values.items():
            old = getattr(self, name)
            new[name] = old.changed(**value) if isinstance(old, Section) and isinstance(value, Mapping) else value
        return self.model_copy(update=new)

    def absolute(self) -> Self:
        """A copy in which every path is absolute."""
        return self.model_copy(
            update={name: value.absolute() for name, value in self if isinstance(value, Section | Path)}
        )


def _lists(section: type[BaseModel], name: str, value: str | float) -> bool:
    """Returns True if the key takes a list, and `value` by itself is none of its values."""
    kind = section.model_fields[name].annotation
    kinds = (kind,) if get_origin(kind) in (list, tuple) else get_args(kind)
    others = [each for each in kinds if get_origin(each) not in (list, tuple) and each is not type(None)]
    words = [word for each in others if get_origin(each) is Literal for word in get_args(each)]
    only_words = all(get_origin(each) is Literal for each in others)
    return len(others) < len(kinds) and only_words and value not in words
