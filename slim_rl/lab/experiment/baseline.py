"""Forced-question baseline: reward of the initial policy when it is forced to ask, compared with the policies trained from it.

Forcing yields more questions without training; the gain of training is the distance of its dots from the line.

Every point is a mean over held-out games; its questions and informative pairs include the forced ones. `Points` are JSON-able:
    forced     one per number of forced questions
    initial    initial policy in free play; empty if it was not played
    trained    arm -> one per run
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slim_rl.analysis.arms import TRAIN, order_arms
from slim_rl.analysis.figures import INK, SOFT, short
from slim_rl.analysis.held_out import completed, ends, runs_trained

Points = dict[str, Any]
_NUMBERS = ["questions", "informative_pairs", "reward"]
_FORCED = {"questions": "questions_forced", "informative_pairs": "informative_forced"}


def of_frame(frame: pd.DataFrame) -> Points:
    """Returns the points of runs, and of evaluations of their initial policies with forced questions, from a frame of `load`."""
    played = completed(frame[frame["phase"] != TRAIN])
    trained = runs_trained(frame)
    runs = played[played["run"].isin(trained)]
    sides = ends(runs, trained)
    before = sides[sides["when"] == "before"]
    before = before[before["arm"].isin(order_arms(before["arm"].unique())[:1])]  # the treatment's
    forced = played[
        played["mode"].str.startswith("forced")
        & played["policy"].isin(before["policy"])
        & played["partner"].isin(before["partner"])
        & ~played.index.isin(runs.index)
    ]
    return points_of(forced, "run", before, sides[sides["when"] == "after"])


def points_of(forced: pd.DataFrame, cell: str, initial: pd.DataFrame, after: pd.DataFrame) -> Points:
    """Returns the points of dialogues, or of games' means.

    Args:
        forced: those with forced questions; `cell`: column that differs with their number of forced questions.
        initial, after: those of the initial policies in free play, and of the trained ones.
    """
    if "informative_forced" in forced:  # the values of earlier pages count forced questions among the policy's
        forced = forced.assign(**{name: forced[name] + forced[of] for name, of in _FORCED.items()})
    means = {str(arm): rows.groupby("run")[_NUMBERS].mean() for arm, rows in after.groupby("arm")}
    return {
        "forced": forced.groupby(cell)[_NUMBERS].mean().sort_values("questions").to_dict(orient="records"),
        "initial": initial[_NUMBERS].mean().to_dict() if len(initial) else {},
        "trained": {arm: runs.to_dict(orient="records") for arm, runs in means.items()},
    }


def draw(ax: Axes, points: Points, palette: Mapping[str, str], x: str, price: float = 0.0) -> None:
    """Draws net reward against `x`: the initial policy (hollow), the same with forced questions (dashed), one dot per run.

    Arms that the palette lacks are left out.
    """

    def at(some: list[dict[str, float]]) -> tuple[list[float], list[float]]:
        return [one[x] for one in some], [one["reward"] - price * one["questions"] for one in some]

    if points["forced"]:
        forced = sorted(points["forced"], key=lambda one: one[x])
        ax.plot(*at(forced), "o--", color=SOFT, markersize=4, label="initial policy, forced questions")
    if points["initial"]:
        ax.plot(*at([points["initial"]]), "o", color=INK, markerfacecolor="white", label="initial policy", zorder=3)
    shown = [arm for arm in palette if points["trained"].get(arm)]
    for arm in shown:
        label = "trained (one dot per run)" if len(shown) == 1 else short(arm)
        ax.plot(*at(points["trained"][arm]), "o", color=palette[arm], markersize=5, label=label)


def figure(points: Points, palette: Mapping[str, str]) -> Figure | None:
    """Draws reward against informative pairs; None without forced questions, or if no arm of the palette was trained."""
    if not points["forced"] or palette.keys().isdisjoint(points["trained"]):
        return None
    drawn = Figure(figsize=(6.0, 3.8))
    ax = drawn.subplots()
    draw(ax, points, palette, "informative_pairs")
    ax.set_xlabel("informative pairs per game")
    ax.set_ylabel("reward")
    ax.legend(loc="lower right")
    return drawn
