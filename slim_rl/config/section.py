"""What every part of a config is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), use_attribute_docstrings=True, allow_inf_nan=False
    )

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
