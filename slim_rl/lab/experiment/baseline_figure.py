"""The decoding baseline, drawn: a line for the start with questions put for it, dots for what was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slim_rl.analysis.figure_style import INK, SOFT, colours, short_words
from slim_rl.lab.experiment.baseline import Points

CAPTION = (
    "The decoding baseline: held-out reward of the untrained start after questions that were put for it, each about a pair that it does not "
    "know and its partner does, and of the trained policies with the questions that they ask themselves."
)


def draw(ax: Axes, points: Points, palette: Mapping[str, str], x: str, price: float = 0.0) -> None:
    """Reward, net of what questions cost, against `x`: dashed the start with questions put for it, hollow the start itself, a dot a run.
    Arms that the palette lacks are left out.
    """

    def at(some: list[dict[str, float]]) -> tuple[list[float], list[float]]:
        return [one[x] for one in some], [one["reward"] - price * one["questions"] for one in some]

    if points["forced"]:
        forced = sorted(points["forced"], key=lambda one: one[x])
        ax.plot(*at(forced), "o--", color=SOFT, markersize=4, label="the start, questions put for it")
    if points["start"]:
        ax.plot(*at([points["start"]]), "o", color=INK, markerfacecolor="white", label="the start", zorder=3)
    shown = [arm for arm in palette if points["trained"].get(arm)]
    for arm in shown:
        label = "trained: one dot a run" if len(shown) == 1 else short_words(arm)
        ax.plot(*at(points["trained"][arm]), "o", color=palette[arm], markersize=5, label=label)


def of_report(results: Mapping[str, Any]) -> Figure | None:
    """The figure of a report, from `summary`'s numbers; None where nothing was put for a start."""
    points = results["baseline"]
    if not points["forced"] or not points["trained"]:
        return None
    palette = {arm: colour for arm, colour in colours(results["arms"]).items() if arm in points["trained"]}
    return alone(points, palette)


def alone(points: Points, palette: Mapping[str, str]) -> Figure:
    drawn = Figure(figsize=(6.0, 3.8))
    ax = drawn.subplots()
    draw(ax, points, palette, "informative_pairs")
    ax.set_xlabel("informative pairs a game")
    ax.set_ylabel("reward")
    ax.legend(loc="lower right")
    return drawn


def reach(points: Points, palette: Mapping[str, str]) -> float:
    """The most questions of any point that is drawn."""
    runs = [run for arm in palette for run in points["trained"].get(arm, [])]
    return float(np.max([one["questions"] for one in [*points["forced"], points["start"], *runs] if one], initial=0.0))
