"""Sections that the lab adds to the log report; importing this module registers them (`analysis.report`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.figures import Plot, colours
from slim_rl.analysis.held_out import by_arm, held_out
from slim_rl.analysis.load import Log
from slim_rl.analysis.page import Section
from slim_rl.analysis.report import held_out as table_of
from slim_rl.analysis.report import register
from slim_rl.lab.askers import Askers
from slim_rl.lab.experiment import TEXTS, baseline
from slim_rl.lab.gap import HEADING, LOSSES, with_gap


@register
def asking_gap(log: Log, price: float) -> Section:
    """Returns the gap to the ideal asker and its parts, one row per arm and partner."""
    arms = list(log.frame["arm"].cat.categories)
    played = log.frame[(log.frame["phase"] != TRAIN) & ~log.frame["failed"]]
    games = log.frame.drop(columns=list(LOSSES), errors="ignore")  # a game may have columns of these names
    gaps = with_gap(log, played, dict.fromkeys(arms, price), Askers())[list(LOSSES)]
    frame = games.join(gaps)
    return gap_section(by_arm(held_out(frame), [name for name in LOSSES if frame[name].notna().any()]), "partner")


def gap_section(rows: Sequence[Mapping[str, Any]], condition: str) -> Section:
    """Returns the gap and its parts from rows of `held_out.by_arm`; `condition`: heading of their conditions."""
    return Section(HEADING, {"gap": rows}, [table_of(rows, TEXTS["gap"], condition)], folded=True)


@register
def decoding_baseline(log: Log, price: float) -> Section:
    """Returns the initial policy's reward with forced questions, compared with that of trained runs."""

    def draw(results: Mapping[str, Any]) -> Figure | None:
        return baseline.figure(results["baseline"], colours(results["arms"]))

    plot = Plot(draw, TEXTS["figures"]["baseline"], wide=False)
    return Section("Forced questions", {"baseline": baseline.of_frame(log.frame)}, plots={"baseline": plot})
