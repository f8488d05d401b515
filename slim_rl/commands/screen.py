"""Terminal output.

Invariant: text from models, logs and files is shown literally, never interpreted as markup or control characters.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

from slim_rl.errors import SlimWarning

if TYPE_CHECKING:
    from slim_rl.analysis.tables import Table
    from slim_rl.dialogue.record import Dialogue
    from slim_rl.environment import Board


# Control characters except line ends and tabs, and those that change the direction of writing, which could reorder the text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns the text without control characters."""
    return _CONTROL.sub("", text)


def show_warnings_as_sentences() -> None:
    """Makes Python show a `SlimWarning` as one sentence; other warnings are unchanged."""
    default = warnings.formatwarning

    def plain(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
        if issubclass(category, SlimWarning):
            return f"slim-rl: {printable(str(message))}\n"
        return default(message, category, *place, **line)

    warnings.formatwarning = plain


def show_status(activity: str) -> AbstractContextManager[object]:
    """Shows `activity` on a terminal's stderr while the block runs."""
    return Console(stderr=True).status(Text(f"{printable(activity)} ..."))


def print_answer(dialogues: Iterable[Dialogue], people: Path | None = None) -> None:
    """Prints the report's answer (`analysis.report.answer`) on held-out games."""
    from slim_rl.analysis.report import answer

    print_tables(*answer(dialogues, people))


def print_tables(tables: Iterable[Table], sentences: Iterable[str]) -> None:
    """Prints tables in the width of the terminal, and sentences below them."""
    from slim_rl.analysis.tables import on_screen

    console = Console()
    for part in chain.from_iterable(on_screen(table, console.width) for table in tables):
        console.print(part)
    for sentence in sentences:
        console.print(printable(sentence), highlight=False, markup=False)


def table_of(board: Board) -> ScreenTable:
    """Returns a board as a terminal table; marked cells are bold, with a star."""
    table = ScreenTable(title=Text(printable(board.title)))
    table.add_column("")
    for column in board.columns:
        table.add_column(Text(printable(column)), justify="right")
    for row, name in enumerate(board.rows):
        cells = [
            Text(printable(f"*{cell}"), "bold green") if (row, column) in board.marked else Text(printable(cell))
            for column, cell in enumerate(board.cells[row])
        ]
        table.add_row(Text(printable(name)), *cells)
    return table
