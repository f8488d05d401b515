"""Tables as data: a caption and rows of text. One form for pages, CSV and the terminal.

Invariants:
    A cell is plain text, which every form escapes; no name from a log becomes markup.
    The caption or a column states what the intervals are over.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as ScreenTable

from slim_rl.config import read_yaml
from slim_rl.formats import DASH, NOT_MEASURED, interval, known, plain

Row = Mapping[str, str]
TEXTS: dict[str, Any] = read_yaml(Path(__file__).with_name("page") / "texts.yaml")
MOST_FOLDED = 5  # columns of a table on a screen whose cells are rather folded than laid on their side
_NUMBER = re.compile(rf"[-+−<]? ?[\d.,]+|{DASH}|{NOT_MEASURED}")


@dataclass(frozen=True, slots=True)
class Table:
    """Caption, and rows from headings to cells."""

    caption: str
    rows: Sequence[Row]

    @property
    def heads(self) -> dict[str, bool]:
        """Headings, each with whether its cells are numbers, which are set to the right."""
        heads = self.rows[0] if self.rows else ()
        return {head: all(_NUMBER.match(row.get(head, DASH)) for row in self.rows) for head in heads}


def value(part: Mapping[str, Any], share: bool = False, signed: bool = False) -> str:
    """Returns a number with its interval: '0.43 (0.40 to 0.46)'."""
    if part.get("n") == 0 and not known(part["value"]):
        return NOT_MEASURED
    span = interval(part["low"], part["high"], share, signed)
    return plain(part["value"], share, signed) + (f" ({span})" if span != DASH else "")


def markdown_cell(cell: str) -> str:
    """Returns a cell's text for a table in Markdown."""
    return re.sub(r"<(?=[A-Za-z/!])", "&lt;", " ".join(cell.split())).replace("|", "\\|").replace("[", "\\[")


def on_screen(table: Table, width: int = 80) -> Iterator[ScreenTable]:
    """Yields the table for a terminal of this width, on its side in parts if it is wider."""
    heads = list(table.heads)
    cells = [[row.get(head, DASH) for head in heads] for row in table.rows]
    widths = [max(map(len, column)) + 2 for column in zip(heads, *cells, strict=True)]
    if len(heads) <= MOST_FOLDED or sum(widths) <= width:
        yield _screen(table.caption, table.heads.items(), cells)
        return
    size = max(1, (width - max(map(len, heads))) // (max(len(cell) for row in cells for cell in row) + 2))
    for start in range(0, len(cells), size):
        first, *others = zip(heads, *cells[start : start + size], strict=True)
        yield _screen(
            "" if start else table.caption, [(first[0], False), *((name, True) for name in first[1:])], others
        )


def _screen(caption: str, heads: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> ScreenTable:
    """Returns a table of rich; a first cell equal to the one above it is left out."""
    screen = ScreenTable(title=escape(caption), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head, number in heads:
        screen.add_column(escape(head), justify="right" if number else "left", overflow="fold")
    before = ""
    for first, *cells in rows:
        screen.add_row("" if first == before else escape(first), *map(escape, cells))
        before = first
    return screen
