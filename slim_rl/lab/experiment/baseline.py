"""Forced-question baseline: reward of the initial policy when it is forced to ask, compared with the policies trained from it.

Forcing yields more questions without training; the gain of training is the distance of its dots from the line.

Every point is a mean over held-out games. `Points` are JSON-able:
    forced     one per number of forced questions
    initial    initial policy in free play; empty if it was not played
    trained    arm -> one per run
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.plays import HELD_OUT, Plays, completed, ends, runs_trained

Points = dict[str, Any]
_NUMBERS = ["questions", "informative_pairs", "reward"]


def of_plays(plays: Plays) -> Points:
    """Returns the points of an experiment with conditions forced_1, forced_2, ..., played by the treatment's initial policy."""
    frame = plays.held_out
    held_out = frame[frame["condition"] == HELD_OUT]
    before = frame[(frame["arm"] == plays.arms[0]) & (frame["when"] == "before")]
    forced = before[before["condition"].str.fullmatch(r"forced_\d+")]
    return _points(forced, "condition", before[before["condition"] == HELD_OUT], held_out[held_out["when"] == "after"])


def of_frame(frame: pd.DataFrame) -> Points:
    """Returns the points of runs, and of evaluations of their initial policies with forced questions, from a frame of `load`."""
    played = completed(frame[frame["phase"] != TRAIN])
    trained = runs_trained(frame)
    runs = played[played["run"].isin(trained)]
    sides = ends(runs, trained)
    before = sides[sides["when"] == "before"]
    forced = played[
        (played["mode"] != "free") & played["policy"].isin(set(before["policy"])) & ~played.index.isin(runs.index)
    ]
    return _points(forced, "run", before, sides[sides["when"] == "after"])


def _points(forced: pd.DataFrame, cell: str, initial: pd.DataFrame, after: pd.DataFrame) -> Points:
    means = {str(arm): rows.groupby("run")[_NUMBERS].mean() for arm, rows in after.groupby("arm")}
    return {
        "forced": forced.groupby(cell)[_NUMBERS].mean().sort_values("questions").to_dict(orient="records"),
        "initial": initial[_NUMBERS].mean().to_dict() if len(initial) else {},
        "trained": {arm: runs.to_dict(orient="records") for arm, runs in means.items()},
    }
