"""Tables as data: rows, and columns that format them; the page's template renders HTML, `as_markdown` Markdown.

Invariants:
    A cell is plain text, which the template escapes, or a `TableCell`; no name from a log becomes markup.
    The caption or a column states what the intervals are over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from slim_rl.analysis.plays import comparable
from slim_rl.analysis.verdict import by_how_much
from slim_rl.formats import DASH, NOT_MEASURED, interval, known, p_value, plain, words

Row = Mapping[str, Any]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class TableCell:
    """Cell with a grey text `aside` after it, and a dot of `colour` before it."""

    text: str
    aside: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Heading and formatter of a column; `prose` aligns it left."""

    head: str
    show: Callable[[Row], str | TableCell]
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Caption, columns and rows; `others` are rows that are folded away."""

    caption: str
    columns: Sequence[Column]
    rows: Rows
    others: Rows = ()


def prose(key: str, head: str | None = None) -> Column:
    """Returns a column of text; its heading is the key by default."""
    return Column(key if head is None else head, lambda row: row[key], prose=True)


def number(key: str, head: str | None = None) -> Column:
    """Returns a column of whole numbers; its heading is the key by default."""
    return Column(key if head is None else head, lambda row: f"{row[key]:,}")


def p_of(key: str, head: str) -> Column:
    """Returns a column of p values."""
    return Column(head, lambda row: p_value(row.get(key)))


def arm(palette: Mapping[str, str], key: str = "arm", head: str = "arm") -> Column:
    """Returns a column of arms, each with a dot of its colour."""
    return Column(head, lambda row: TableCell(words(row[key]), colour=palette.get(row[key], "")), prose=True)


def with_interval(part: Row, share: bool = False, signed: bool = False) -> TableCell:
    """Returns a row's value, with its interval in grey."""
    if part.get("n") == 0 and not known(part["value"]):
        return TableCell(NOT_MEASURED)
    span = interval(part["low"], part["high"], share, signed)
    return TableCell(plain(part["value"], share, signed), "" if span == DASH else span)


def as_markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_without_markup(cell) for cell in cells) + " |"

    rule = ["---" if column.prose else "---:" for column in table.columns]
    return "\n".join(map(line, [[column.head for column in table.columns], rule, *_texts(table)]))


def _without_markup(cell: str) -> str:
    """Returns text escaped for a cell of a Markdown table, on one line."""
    return re.sub(r"<(?=[A-Za-z/!])", "&lt;", " ".join(cell.split())).replace("|", "\\|").replace("[", "\\[")


def as_csv(table: Table) -> str:
    return _frame(table).to_csv(index=False)


def as_latex(table: Table) -> str:
    """Returns the table in LaTeX, with booktabs rules."""
    columns = "".join("l" if column.prose else "r" for column in table.columns)
    text = str(
        _frame(table).to_latex(
            index=False, escape=True, caption=table.caption.translate(_ESCAPED), column_format=columns
        )
    )
    for sign, written in _SIGNS.items():
        text = text.replace(sign, written)
    return text


# Characters that LaTeX needs commands for
_SIGNS = {"−": "$-$", "→": "$\\rightarrow$", "±": "$\\pm$", "–": "--", "×": "$\\times$"}


# For captions, as pandas escapes cells
_ESCAPED = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "%&#_${}"}
)


def _frame(table: Table) -> pd.DataFrame:
    """Returns the rows of the table as displayed."""
    heads: list[str] = []
    for column in table.columns:  # a frame needs distinct headings
        heads.append(column.head + " " * sum(head.strip() == column.head for head in heads))
    return pd.DataFrame(_texts(table), columns=heads)


def _texts(table: Table) -> list[list[str]]:
    def cell(shown: str | TableCell) -> str:
        return shown if isinstance(shown, str) else f"{shown.text} ({shown.aside})" if shown.aside else shown.text

    return [[cell(column.show(row)) for column in table.columns] for row in table.rows]


# -- before and after --------------------------------------------------------------------------------------------------


def held_out(
    rows: Rows, measures: Sequence[str], caption: str, palette: Mapping[str, str], condition: str = ""
) -> Table:
    """Returns one row per arm and condition of `changes.by_arm`'s rows: each measure before → after, and its change.

    Args:
        condition: heading of the column of conditions; "": no such column.
    """
    by_arm: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        by_arm.setdefault((row["arm"], row["condition"]), {**row})[row["measure"]] = row
    columns = [
        arm(palette),
        *([prose("condition", condition)] if condition else []),
        number("runs", "seeds"),
        number("games"),
        *(Column(comparable()[name].heading, _moved(name)) for name in measures),
        prose("over", "intervals over"),
    ]
    return Table(caption, columns, list(by_arm.values()))


def _moved(measure: str) -> Callable[[Row], str | TableCell]:
    return lambda row: moved(row[measure]) if measure in row else DASH


def moved(row: Row) -> str | TableCell:
    """Returns before → after with the change and its interval; without a before, the value with its interval."""
    share = comparable()[row["measure"]].share
    if not known(row["after"]):
        return NOT_MEASURED
    if not known(row["before"]):
        return TableCell(plain(row["after"], share), interval(row["after_low"], row["after_high"], share))
    aside = by_how_much(row, share).replace(", 95% interval", ",")
    return TableCell(f"{plain(row['before'], share)} → {plain(row['after'], share)}", aside)


# -- contrasts ---------------------------------------------------------------------------------------------------------


def contrasts(compared: Rows, preregistered: bool) -> list[Table]:
    """Returns the tables of the contrasts of `experiment.results.compare`, primary ones first."""
    primary = [row for row in compared if row["role"] == "primary"]
    secondary = [row for row in compared if row["role"] != "primary"]
    when = "preregistered" if preregistered else "chosen after runs had been seen"
    holm = f"Holm p is corrected for all {len(primary)} contrasts of this family, including those not run."
    family = Table(f"Primary contrasts, {when}. {_HOW} {holm}", _columns(True), primary)
    name = "Secondary contrasts" if primary else "Contrasts"
    others = Table(f"{name}, {when}; uncorrected. {_HOW}", _columns(False), secondary)
    return [table for table in (family, others) if table.rows]


_HOW = (
    "Difference with its 95% interval; p: the larger of that interval's test and a permutation over seeds; minimum p: the smallest "
    "possible with this number of seeds."
)


def _columns(family: bool) -> list[Column]:
    holm = [p_of("p_holm", "Holm p"), Column("minimum Holm p", lambda row: _minimum(row["least_holm"]))]
    return [
        prose("name", "contrast"),
        Column(  # next to the name, to be visible in a narrow window
            "result",
            lambda row: row["found"] + (f"; {row['note']}" if row["note"] and row["note"] != row["found"] else ""),
            prose=True,
        ),
        Column(
            "measure",
            lambda row: (
                words(row["measure"])
                + (f", step of reaching {row['reaches']}" if row["reaches"] else "")
                + (f", correlation with {words(row['correlated_with'])}" if row["correlated_with"] else "")
            ),
            prose=True,
        ),
        Column("compared", lambda row: f"{row['a']} − {row['b']}" if row["b"] != "zero" else row["a"], prose=True),
        Column(
            "predicted", lambda row: row["direction"] + (f" (±{row['margin']})" if row["margin"] else ""), prose=True
        ),
        Column("difference", _difference),
        prose("over", "interval over"),
        Column("seeds", lambda row: " + ".join(map(str, row["runs"]))),
        p_of("p_crossed", "p, interval"),
        p_of("p_permutation", "p, permutation"),
        Column("minimum p", lambda row: _minimum(row["least"])),
        *(holm if family else []),
    ]


def _difference(row: Row) -> TableCell:
    return with_interval(row, comparable()[row["measure"]].share and not row["correlated_with"], signed=True)


def _minimum(p: float) -> str:
    return f"{p:.3g}" if known(p) else DASH
