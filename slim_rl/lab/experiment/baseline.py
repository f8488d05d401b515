"""The decoding baseline: what the untrained start earns where questions are put for it, beside what was trained from it. More
questions can be had without training; what training adds is how far its dots lie above the line.

Every point is a mean over held-out games. `Points` are JSON-able:
    put        one a number of questions put for the start
    start      the start left to itself; empty where it was not played so
    trained    arm -> one a run
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.plays import HELD_OUT, Plays, ends, plain, runs_trained

Points = dict[str, Any]
_NUMBERS = ["questions", "informative_pairs", "reward"]


def of_plays(plays: Plays) -> Points:
    """Of an experiment with conditions forced_1, forced_2, ..., played by the treatment's start."""
    frame = plays.held_out
    own = frame[frame["condition"] == HELD_OUT]
    before = frame[(frame["arm"] == plays.arms[0]) & (frame["when"] == "before")]
    forced = before[before["condition"].str.fullmatch(r"forced_\d+")]
    return _points(forced, "condition", before[before["condition"] == HELD_OUT], own[own["when"] == "after"])


def of_frame(frame: pd.DataFrame) -> Points:
    """Of runs and of evaluations of their starts with questions put for them (`slim-rl evaluate --mode forced:3`), from a frame as `load`
    makes it.
    """
    played = plain(frame[frame["phase"] != TRAIN])
    trained = runs_trained(frame)
    runs = played[played["run"].isin(trained)]
    sides = ends(runs, trained)
    before = sides[sides["when"] == "before"]
    forced = played[
        (played["mode"] != "free") & played["policy"].isin(set(before["policy"])) & ~played.index.isin(runs.index)
    ]
    return _points(forced, "run", before, sides[sides["when"] == "after"])


def _points(forced: pd.DataFrame, cell: str, start: pd.DataFrame, after: pd.DataFrame) -> Points:
    means = {str(arm): rows.groupby("run")[_NUMBERS].mean() for arm, rows in after.groupby("arm")}
    return {
        "forced": forced.groupby(cell)[_NUMBERS].mean().sort_values("questions").to_dict(orient="records"),
        "start": start[_NUMBERS].mean().to_dict() if len(start) else {},
        "trained": {arm: runs.to_dict(orient="records") for arm, runs in means.items()},
    }
