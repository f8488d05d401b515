"""Terminal tables of 80 columns: measures with 95% intervals, errors clustered by game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from slim_rl.analysis.cells import measured_cells, reliability_of_cells
from slim_rl.analysis.compared import PlayedCell, compare, main_mode, sentence_of
from slim_rl.analysis.verdict import changed, frame
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import NOT_MEASURED, count, interval, known, p_value, plain, words
from slim_rl.statistics import Estimate


def cells_table(cells: Mapping[str, Sequence[Dialogue]], title: str, success: float | None = None) -> Table:
    """Returns one row per measure and cell, with pass^k if games were played several times.

    Args:
        success: as for `reliability_of_cells`.
    """
    table = Table(title=title, caption="intervals: 95%, over games", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("measure", "cell", "n", "mean", "interval"):
        table.add_column(heading, justify="left" if heading in ("measure", "cell") else "right", overflow="fold")
    for i, number in enumerate((*measured_cells(cells), *reliability_of_cells(cells, success))):
        place, share, mean = i % len(cells), number.measure.share, number.mean
        table.add_row(
            "" if place else number.heading,
            words(number.cell),
            f"{mean.n:,}",
            plain(mean.value, share) if mean.n else NOT_MEASURED,
            interval(mean.low, mean.high, share),
            end_section=place == len(cells) - 1,
        )
    return table


def with_error(mean: Estimate) -> str:
    """Returns, for example, '0.123 ± 0.045'."""
    if not mean.n:
        return NOT_MEASURED
    return f"{plain(mean.value)} ± {(mean.high - mean.low) / 2:.3f}" if known(mean.low) else plain(mean.value)


def compared_sentences(cells: Mapping[str, Sequence[Dialogue]]) -> list[str]:
    """Returns one sentence per pair of cells on their differences, as in the report."""
    return [sentence_of(pair) for pair in compare([_cell(*item) for item in cells.items() if item[1]])]


def _cell(name: str, dialogues: Sequence[Dialogue]) -> PlayedCell:
    first = dialogues[0]
    mode = main_mode(str(dialogue.policy.get("intervention") or "free") for dialogue in dialogues)
    policy = {**first.policy, "intervention": None}
    return PlayedCell(name, str(policy), str(first.partner), mode, frame(dialogues).set_index("game_id"))


def before_after_table(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> Table:
    """Returns one row per measure: its means on held-out games before and after training, and their difference."""
    first, last = frame(before), frame(after)
    games = len(set(first["game_id"]) & set(last["game_id"]))
    changes = {measure.name: changed(first, last, measure.name) for measure in shown_in("table")}
    title = f"{count(games, 'held-out game')}, before and after training"
    return change_table(changes, title, ("before", "after", "change"))


def change_table(changes: Mapping[str, Mapping[str, Any]], title: str, headings: tuple[str, str, str]) -> Table:
    """Returns one row per measure: two means and their difference. The changes' keys are those of `changes.change`."""
    over = next(iter(changes.values()))["over"]
    table = Table(
        title=escape(title), caption=f"intervals: 95%, over {over}, paired by game", box=SIMPLE_HEAD, pad_edge=False
    )
    for heading in ("", *headings, "interval", "p"):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for measure in shown_in("table"):
        change, share = changes[measure.name], measure.share
        table.add_row(
            measure.heading,
            *(plain(change[side], share) if known(change[side]) else NOT_MEASURED for side in ("before", "after")),
            plain(change["value"], share, signed=True),
            interval(change["low"], change["high"], share, signed=True),
            p_value(change["p"]),
        )
    return table
