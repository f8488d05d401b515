"""Sections that other packages add to the report, from the log: numbers, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slim_rl.analysis.figures import Plot
from slim_rl.analysis.load import Log
from slim_rl.analysis.tables import Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report.

    Attributes:
        heading: heading of its tables.
        numbers: part of summary.json, by name; figures are drawn from it.
        tables: tables below the heading; without a row the heading is left out.
        plots: figures by file name, drawn from all numbers of the report.
    """

    heading: str
    numbers: Mapping[str, Any]
    tables: Sequence[Table] = ()
    plots: Mapping[str, Plot] = field(default_factory=dict)


Make = Callable[[Log, float], Section]
SECTIONS: list[Make] = []


def register(make: Make) -> Make:
    """Adds a section to every report; `make` gets the log and the question cost (`analyze`'s `price`)."""
    SECTIONS.append(make)
    return make
