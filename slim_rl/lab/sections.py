"""Sections that the lab adds to the log report; importing this module registers them (`analysis.sections`)."""

from __future__ import annotations

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.changes import by_arm
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.figures import Plot
from slim_rl.analysis.load import Log
from slim_rl.analysis.plays import of_frame
from slim_rl.analysis.sections import Section, register
from slim_rl.analysis.tables import Column, Table, arm, held_out, number, prose, with_interval
from slim_rl.lab import belief_values
from slim_rl.lab.askers import Askers
from slim_rl.lab.experiment import baseline, baseline_figure
from slim_rl.lab.gap import CAPTION, HEADING, LOSSES, with_gap


@register
def asking_gap(log: Log, price: float) -> Section:
    """Returns the gap to the ideal asker and its parts, one row per arm and partner."""
    arms = list(log.frame["arm"].cat.categories)
    played = log.frame[(log.frame["phase"] != TRAIN) & ~log.frame["failed"]]
    games = log.frame.drop(columns=list(LOSSES), errors="ignore")  # a game may have columns of these names
    gaps = with_gap(log, played, dict.fromkeys(arms, price), Askers())[list(LOSSES)]
    frame = games.join(gaps)
    rows = by_arm(of_frame(frame), [name for name in LOSSES if frame[name].notna().any()])
    table = held_out(rows, list(LOSSES), CAPTION, colours(arms), "partner")
    return Section(HEADING, {"gap": rows}, [table])


@register
def decoding_baseline(log: Log, price: float) -> Section:
    """Returns the initial policy's reward with forced questions, compared with that of trained runs."""
    plot = Plot(baseline_figure.of_report, baseline_figure.CAPTION, wide=False)
    return Section("", {"baseline": baseline.of_frame(log.frame)}, plots={"baseline": plot})


@register
def belief_values_of(log: Log, price: float) -> Section:
    """Returns the correlation of belief credit with the values of questions, per arm; nothing without beliefs."""
    if not (rows := belief_values.correlations(log)):
        return Section("", {})
    columns = [
        arm(colours(list(log.frame["arm"].cat.categories))),
        prose("value of", "value of the question"),
        prose("steps", "training steps"),
        Column("correlation", lambda row: with_interval(row, signed=True)),
        number("n", "questions"),
        number("clusters", "games"),
    ]
    return Section(belief_values.HEADING, {"belief": rows}, [Table(belief_values.CAPTION, columns, rows)])
