"""Terminal output.

Invariant: text from models, logs and files is shown literally, never interpreted as markup or control characters.
"""

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


# Control characters except line ends and tabs, and those that change the direction of writing, which could reorder the text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_COMMAND = re.compile(r"`(slim-rl \w+) CONFIG\b")  # a command in a message, for the config of this command line
_config = "CONFIG"


def remember_config(options: Sequence[str]) -> None:
    """Stores the config and overrides of a command line, to print them in the commands that messages suggest."""
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
    """Returns the text without control characters, and with this command line's config in suggested commands."""
    return _CONTROL.sub("", _COMMAND.sub(lambda match: f"`{match[1]} {_config}", text))


def show_warnings_as_sentences(prefix: str) -> None:
    """Makes Python show a `SlimWarning` as one sentence; other warnings are unchanged."""
    default = warnings.formatwarning

    def plain(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, SlimWarning):
            return f"{prefix}{printable(str(message))}\n"
        return default(message, category, filename, lineno, line)

    warnings.formatwarning = plain


def working(activity: str) -> AbstractContextManager[object]:
    """Shows `activity` on a terminal's stderr while the block runs."""
    return Console(stderr=True).status(Text(f"{printable(activity)} ..."))


def turn_texts(dialogue: Dialogue) -> Iterator[Text]:
    """Yields the dialogue's thoughts, messages, errors and observations, one text per line, questions annotated."""
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
    """Returns a board as a terminal table; marked cells are bold, with a star."""
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
