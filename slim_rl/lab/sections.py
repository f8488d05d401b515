"""Sections of the report that the lab adds. Importing this module registers them (`analysis.sections`)."""

from __future__ import annotations

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.figures import Plot
from slim_rl.analysis.load import Log
from slim_rl.analysis.plays import by_arm, of_frame
from slim_rl.analysis.sections import Section, register
from slim_rl.analysis.tables import held_out
from slim_rl.lab.askers import Askers
from slim_rl.lab.experiment import baseline, baseline_figure
from slim_rl.lab.gap import CAPTION, LOSSES, entered


@register
def asking_gap(log: Log, price: float) -> Section:
    """Returns where an ideal asker earned more, one row per arm and partner."""
    arms = list(log.frame["arm"].cat.categories)
    played = log.frame[(log.frame["phase"] != TRAIN) & ~log.frame["failed"]]
    games = log.frame.drop(columns=list(LOSSES), errors="ignore")  # a game may call columns of its own so
    lost = entered(log, played, dict.fromkeys(arms, price), Askers())[list(LOSSES)]
    frame = games.join(lost)
    rows = by_arm(of_frame(frame), [name for name in LOSSES if frame[name].notna().any()])
    table = held_out(rows, list(LOSSES), CAPTION, colours(arms), "partner")
    return Section("The ledger of asking", {"ledger": rows}, [table])


@register
def decoding_baseline(log: Log, price: float) -> Section:
    """Returns the start's reward with forced questions beside that of trained runs."""
    plot = Plot(baseline_figure.of_report, baseline_figure.CAPTION, wide=False)
    return Section("", {"baseline": baseline.of_frame(log.frame)}, plots={"baseline": plot})
