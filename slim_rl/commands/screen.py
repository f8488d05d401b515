"""What goes to a terminal: text from models, logs and files is shown literally, never interpreted as markup or control characters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slim_rl.errors import SlimWarning

if TYPE_CHECKING:
    from slim_rl.dialogue.record import Dialogue
    from slim_rl.environment import Board


def printable(text: str) -> str:
    """The text without the control characters that a terminal would obey."""
    return "".join(c for c in text if c == "\n" or c == "\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))


def show_warnings_as_sentences(prefix: str) -> None:
    """From now on a `SlimWarning` is one sentence on stderr; others are shown as Python shows them."""
    usual = warnings.formatwarning

    def plain(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, SlimWarning):
            return f"{prefix}{printable(str(message))}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = plain


def working(what: str) -> AbstractContextManager[object]:
    """Shows on a terminal's stderr that something is being done, as long as the block takes."""
    return Console(stderr=True).status(Text(f"{printable(what)} ..."))


def turn_texts(dialogue: Dialogue) -> Iterator[Text]:
    """What was thought, said and refused, a text a line, with what its questions asked."""
    for turn in dialogue.turns:
        if turn.thought:
            yield Text(f"{turn.role} thinks: {printable(turn.thought)}", "dim italic")
        line = Text(f"{turn.role}> {printable(turn.text)}", "green" if turn.role == "policy" else "cyan")
        if turn.questions:
            worth = "" if turn.value is None else f", worth {turn.value:+.3f}"
            informative = ", informative" if turn.informative else ""
            line.append(f"   ({', '.join(turn.questions)}{informative}{worth})", "dim")
        yield line
        if turn.error:
            yield Text(f"  refused: {printable(turn.error)}", "red")


def table_of(board: Board) -> Table:
    """A board for the terminal; marked cells are bold, with a star."""
    table = Table(title=Text(board.title))
    table.add_column("")
    for column in board.columns:
        table.add_column(Text(column), justify="right")
    for row, name in enumerate(board.rows):
        cells = [
            Text(f"*{cell}", "bold green") if (row, column) in board.marked else Text(cell)
            for column, cell in enumerate(board.cells[row])
        ]
        table.add_row(Text(name), *cells)
    return table
