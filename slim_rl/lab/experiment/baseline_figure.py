"""Figure of the forced-question baseline: a line for the initial policy with forced questions, dots for trained runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slim_rl.analysis.figure_style import INK, SOFT, colours, short_words
from slim_rl.lab.experiment.baseline import Points

CAPTION = (
    "Forced-question baseline: held-out reward of the initial policy after forced questions, each about a pair that it does not know and its "
    "partner does, compared with trained policies, which choose their questions."
)


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
        label = "trained (one dot per run)" if len(shown) == 1 else short_words(arm)
        ax.plot(*at(points["trained"][arm]), "o", color=palette[arm], markersize=5, label=label)


def of_report(results: Mapping[str, Any]) -> Figure | None:
    """Draws the report's figure; None if no initial policy was evaluated with forced questions."""
    points = results["baseline"]
    if not points["forced"] or not points["trained"]:
        return None
    palette = {arm: colour for arm, colour in colours(results["arms"]).items() if arm in points["trained"]}
    return alone(points, palette)


def alone(points: Points, palette: Mapping[str, str]) -> Figure:
    """Draws reward against informative pairs, as a figure of its own."""
    drawn = Figure(figsize=(6.0, 3.8))
    ax = drawn.subplots()
    draw(ax, points, palette, "informative_pairs")
    ax.set_xlabel("informative pairs per game")
    ax.set_ylabel("reward")
    ax.legend(loc="lower right")
    return drawn


def reach(points: Points, palette: Mapping[str, str]) -> float:
    """Returns the largest number of questions of any drawn point."""
    runs = [run for arm in palette for run in points["trained"].get(arm, [])]
    return float(
        np.max([one["questions"] for one in [*points["forced"], points["initial"], *runs] if one], initial=0.0)
    )
