"""What goes to a terminal: text from models, logs and files is shown literally, never interpreted as markup or control characters."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slim_rl import bundled
from slim_rl.errors import SlimWarning

if TYPE_CHECKING:
    from slim_rl.dialogue.record import Dialogue
    from slim_rl.environment import Board


# Control characters but line ends and tabs, and those that turn the direction of writing: words could stand in another order.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_COMMAND = re.compile(r"`(slim-rl \w+) CONFIG\b")  # in messages: a command for the config in hand
_config = "CONFIG"


def config_in_hand(options: Sequence[str]) -> None:
    """Notes the config of a command line and its changes, which the commands in messages are printed with."""
    global _config
    changes = [word for word in _values(options, "--set", "-s") if not word.startswith("train.backend=")]
    named = next((word for word in options if word.endswith((".yaml", ".yml")) or word in bundled.names()), None)
    words = [word for change in changes for word in ("--set", change)]
    _config = shlex.join([named, *words]) if named else "CONFIG"


def _values(options: Sequence[str], *names: str) -> Iterator[str]:
    for word, after in zip(options, [*options[1:], ""], strict=False):
        if word in names:
            yield after
        elif word.startswith(f"{names[0]}="):
            yield word.partition("=")[2]


def printable(text: str) -> str:
    """Returns the text without the characters that a terminal would obey, its commands with the config in hand."""
    return _OBEYED.sub("", _COMMAND.sub(lambda found: f"`{found[1]} {_config}", text))


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
            yield Text(printable(f"{turn.role} thinks: {turn.thought}"), "dim italic")
        line = Text(printable(f"{turn.role}> {turn.text}"), "green" if turn.role == "policy" else "cyan")
        if turn.questions:
            value = "" if turn.question_value is None else f", question value {turn.question_value:+.3f}"
            informative = ", informative" if turn.informative else ""
            line.append(printable(f"   ({', '.join(turn.questions)}{informative}{value})"), "dim")
        yield line
        if turn.error:
            yield Text(f"  refused: {printable(turn.error)}", "red")
        if turn.observation:
            yield Text(printable(f"game> {turn.observation}"), "cyan")


def table_of(board: Board) -> Table:
    """A board for the terminal; marked cells are bold, with a star."""
    table = Table(title=Text(printable(board.title)))
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
