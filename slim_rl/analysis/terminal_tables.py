"""The short tables a command ends with, at 80 columns: measures with 95% intervals, errors clustered by game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from slim_rl.analysis.compared import PlayedCell, compare, sentence_of, usual
from slim_rl.analysis.ledger import LOSSES, Ideals, of_dialogues
from slim_rl.analysis.verdict import changed, frame
from slim_rl.dialogue.measures import MEASURES, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import count, interval, p_value, plain, words
from slim_rl.statistics import clustered_mean


def cells_table(cells: Mapping[str, Sequence[Dialogue]], title: str) -> Table:
    """One row a measure and cell. Where games were played several times: also the share agreed on every time (pass^k of τ-bench,
    Yao et al. 2024).
    """
    table = Table(title=title, caption="intervals: 95%, over games", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("measure", "cell", "n", "mean", "interval"):
        table.add_column(heading, justify="left" if heading in ("measure", "cell") else "right", overflow="fold")
    frames = {name: frame(dialogues).set_index(["game_id", "seat"]) for name, dialogues in cells.items()}
    shown = [
        (measure.heading, measure, {name: data[measure.name] for name, data in frames.items()})
        for measure in shown_in("table")
    ]
    if any(data.index.has_duplicates for data in frames.values()):
        every = {name: data["agreed"].groupby(level=["game_id", "seat"]).min() for name, data in frames.items()}
        shown.append(("agreed every time", MEASURES["agreed"], every))
    for title, measure, values in shown:
        for i, (name, column) in enumerate(values.items()):
            mean = clustered_mean(
                column.astype(float), column.index.get_level_values("game_id"), measure.bounded, measure.signed
            )
            table.add_row(
                "" if i else title,
                words(name),
                f"{mean.n:,}",
                plain(mean.value, measure.share),
                interval(mean.low, mean.high, measure.share),
                end_section=i == len(frames) - 1,
            )
    return table


def ledger_table(cells: Mapping[str, Sequence[Dialogue]], price: float) -> Table | None:
    """The ledger of asking of each cell, at this price a question; None where the game has no ideal asker."""
    ideals = Ideals()
    title = f"Below an ideal asker, at {price:g} a question"
    table = Table(title=title, caption="±: 95% intervals, over games", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("cell", *(loss.short for loss in LOSSES.values())):
        table.add_column(heading, justify="left" if heading == "cell" else "right", overflow="fold")
    for name, dialogues in cells.items():
        played = [dialogue for dialogue in dialogues if not dialogue.failed]
        measured = frame(played)
        if not (lost := of_dialogues(played, measured, price, ideals)):
            return None
        means = [clustered_mean(part, measured["game_id"]) for part in lost.values()]
        table.add_row(words(name), *(f"{plain(each.value)} ± {(each.high - each.low) / 2:.3f}" for each in means))
    return table


def compared_sentences(cells: Mapping[str, Sequence[Dialogue]]) -> list[str]:
    """How cells differ on the games that both played: a sentence a pair, as in the report."""
    return [sentence_of(pair) for pair in compare([_cell(*item) for item in cells.items() if item[1]])]


def _cell(name: str, dialogues: Sequence[Dialogue]) -> PlayedCell:
    first = dialogues[0]
    mode = usual(str(dialogue.policy.get("intervention") or "free") for dialogue in dialogues)
    policy = {**first.policy, "intervention": None}
    return PlayedCell(name, str(policy), str(first.partner), mode, frame(dialogues).set_index("game_id"))


def before_after_table(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> Table:
    """One row a measure: its means on held-out games before and after training, and their difference."""
    first, last = frame(before), frame(after)
    games = len(set(first["game_id"]) & set(last["game_id"]))
    changes = {measure.name: changed(first, last, measure.name) for measure in shown_in("table")}
    title = f"{count(games, 'held-out game')}, before and after training"
    return change_table(changes, title, ("before", "after", "change"))


def change_table(changes: Mapping[str, Mapping[str, Any]], title: str, headings: tuple[str, str, str]) -> Table:
    """One row a measure: two means, and how the second differs. The changes' keys are those of `plays.change`."""
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
            plain(change["before"], share),
            plain(change["after"], share),
            plain(change["value"], share, signed=True),
            interval(change["low"], change["high"], share, signed=True),
            p_value(change["p"]),
        )
    return table
