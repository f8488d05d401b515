"""Figures of the log report, drawn from the results dict; those over training are in `curves`.

Each function returns a matplotlib Figure, or None if there is nothing to plot. Bands and bars are 95% intervals over games.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slim_rl.analysis.alt_texts import curves_alt, other_measures_alt, shares_alt
from slim_rl.analysis.curves import (
    kinds,
    measures,
    measures_caption,
    reference_rewards,
    stop_reasons,
    training,
    training_caption,
)
from slim_rl.analysis.figure_style import INK, colours, draw_levels, label_ends, short_words


@dataclass(frozen=True, slots=True)
class Plot:
    """Figure of a page.

    Attributes:
        draw: function from the page's numbers to the figure, or to None if there is nothing to plot.
        caption: caption, or a function from the page's numbers to it.
        wide: whether the figure takes the page's full width.
        folded: heading under which the figure is folded; "": it is open.
        describe: function from the page's numbers to the alt text; None: the caption's first sentence.
    """

    draw: Callable[..., Figure | None]
    caption: str | Callable[..., str]
    wide: bool = True
    folded: str = ""
    describe: Callable[..., str] | None = None

    def text(self, *numbers: Any) -> str:
        """Returns the caption."""
        return self.caption if isinstance(self.caption, str) else self.caption(*numbers)

    def alt(self, *numbers: Any) -> str:
        """Returns the alt text."""
        if self.describe is not None:
            return self.describe(*numbers)
        return f"Chart: {self.text(*numbers).partition('. ')[0].rstrip('.')}."


def reward_by_questions(results: dict[str, Any]) -> Figure | None:
    """Draws mean reward against the number of information-seeking questions; a point's area is its number of dialogues."""
    if not any(results["reward_by_questions"].values()):
        return None
    figure = Figure(figsize=(5.4, 3.8))
    ax = figure.subplots()
    _points(ax, results, "reward_by_questions")
    ax.set_title("Reward by information-seeking questions")
    ax.set_xlabel("questions per dialogue")
    if lines := draw_levels(ax, reference_rewards(results)):
        label_ends(ax, lines)
    return figure


def frontier(results: dict[str, Any]) -> Figure | None:
    """Draws reward against informative pairs, compared with an ideal and a random asker."""
    curves = results.get("frontier") or {}
    if not curves and not any(results["reward_by_pairs"].values()):
        return None
    figure = Figure(figsize=(5.4, 3.8))
    ax = figure.subplots()
    for i, (name, curve) in enumerate(curves.items()):
        k, label = np.arange(len(curve["mean"])), {"greedy": "ideal asker", "random": "random asker"}.get(name, name)
        style = ("-", "--", ":", "-.")[i % 4]
        ax.plot(k, curve["mean"], style, color=INK, linewidth=1.4, label=short_words(label))
        ax.fill_between(k, curve["low"], curve["high"], color=INK, alpha=0.08, linewidth=0)
    _points(ax, results, "reward_by_pairs")
    ax.set_title("Reward by informative pairs, and the frontier")
    ax.set_xlabel("informative pairs per dialogue")
    return figure


def _points(ax: Axes, results: dict[str, Any], key: str) -> None:
    """Draws the arms' dots, and a legend of them and of the lines already drawn."""
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    drawn = {arm: [p for p in results[key][arm] if p["n"] >= 10 and p["clusters"] >= 2] for arm in results["arms"]}
    largest = max((p["n"] for points in drawn.values() for p in points), default=1)
    shown = [arm for arm in results["arms"] if drawn[arm]]
    palette = colours(results["arms"])
    for i, arm in enumerate(shown):
        points = drawn[arm]
        x = np.array([p["count"] for p in points]) + 0.09 * (i - (len(shown) - 1) / 2)
        mean, low, high, n = (np.array([p[k] for p in points], dtype=float) for k in ("mean", "low", "high", "n"))
        ax.plot(x, mean, color=palette[arm], linewidth=1.0, alpha=0.6)
        ax.vlines(x, low, high, color=palette[arm], linewidth=1.3)
        ax.scatter(x, mean, s=8 + 110 * n / largest, color=palette[arm], edgecolor="white", linewidth=0.6, zorder=3)
    top = int(max((p["count"] for points in drawn.values() for p in points), default=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if top >= results["many"]:
        ax.set_xticks(range(top + 1), [*map(str, range(top)), f"{top}+"])
    ax.set_ylabel("mean reward")
    ax.grid(False, axis="x")
    handles = [ax.scatter([], [], s=36, color=palette[arm], label=short_words(arm)) for arm in shown]
    assert ax.figure is not None
    ax.figure.legend(handles=[*handles, *lines], loc="outside lower left", ncols=3, labelcolor="linecolor")


PLOTS = {
    "training": Plot(
        training,
        training_caption,
        describe=curves_alt("questions", "reward"),
    ),
    "reward_by_questions": Plot(
        reward_by_questions,
        "Mean reward by number of information-seeking questions, with 95% intervals over games. A point's area is its number of "
        "dialogues; points of fewer than 10 dialogues or 2 games are not drawn.",
        wide=False,
    ),
    "frontier": Plot(
        frontier,
        "Mean reward by number of informative pairs (pairs whose score the policy asked for, received, and did not know). Ideal asker: "
        "always asks the question of the highest expected value; random asker: any question. Bands and bars: 95% intervals over games.",
        wide=False,
    ),
    "question_kinds": Plot(
        kinds,
        "Kinds of the policy's questions. A message of two kinds counts for both.",
        describe=shares_alt("kinds"),
    ),
    "stop_reasons": Plot(
        stop_reasons,
        "Why dialogues ended. Greys are failures, which have no reward.",
        describe=shares_alt("stop_reasons"),
    ),
    "measures": Plot(measures, measures_caption, folded="Other measures over training", describe=other_measures_alt),
}
