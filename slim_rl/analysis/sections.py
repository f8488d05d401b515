"""Registry of report sections that other packages add: numbers, tables and figures from the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slim_rl.analysis.figures import Plot
from slim_rl.analysis.load import Log
from slim_rl.analysis.tables import Table


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the report.

    Attributes:
        heading: heading of its tables.
        numbers: entries of summary.json, by name.
        tables: tables below the heading; without rows the heading is left out.
        plots: figures by file name, drawn from all numbers of the report.
    """

    heading: str
    numbers: Mapping[str, Any]
    tables: Sequence[Table] = ()
    plots: Mapping[str, Plot] = field(default_factory=dict)


Make = Callable[[Log, float], Section]
SECTIONS: list[Make] = []


def register(make: Make) -> Make:
    """Adds a section to every report; `make` receives the log and the question cost (`analyze`'s `price`)."""
    SECTIONS.append(make)
    return make
