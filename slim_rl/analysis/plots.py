"""Figures, drawn from the results dict alone. Each function returns one matplotlib Figure, or None where it has nothing
to show.

An arm is labelled where it is drawn. Bands and bars are 95% intervals over games.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slim_rl.analysis.figure_style import (
    INK,
    KIND_COLOURS,
    SOFT,
    STOP_COLOURS,
    Percent,
    colours,
    legend,
    panels,
    short_words,
)
from slim_rl.formats import per_steps, sentence


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the report.

    Attributes:
        draw: makes it from the results and a number of panels in a row; None where there is nothing to show.
        columns: panels in a row.
        narrow: the same for a screen some 400 pixels wide; None for a figure of too many panels.
        wide: it takes the page's whole width.
    """

    draw: Callable[[dict[str, Any], int], Figure | None]
    columns: int
    narrow: int | None
    wide: bool
    caption: str


def draw_all(results: dict[str, Any], narrow: bool = False) -> dict[str, Figure]:
    """Every figure that has something to show, by file name. To be called and saved inside `figure_style.style()`."""
    columns = {name: plot.narrow if narrow else plot.columns for name, plot in PLOTS.items()}
    figures = {name: PLOTS[name].draw(results, number) for name, number in columns.items() if number is not None}
    return {name: figure for name, figure in figures.items() if figure is not None}


# -- over training -----------------------------------------------------------------------------------------------------


def training(results: dict[str, Any], columns: int) -> Figure | None:
    """Information-seeking questions a game, and reward."""
    if not any(results["curves"].values()):
        return None
    figure, (asked, reward) = panels(2, columns, 4.8, 3.7, sharey=False)
    _curve(asked, results, "questions")
    _curve(reward, results, "reward")
    _references(reward, results)
    return figure


def measures(results: dict[str, Any], columns: int) -> Figure | None:
    """Every other measure over training, as small multiples."""
    names = [name for name in results["measures"] if name not in ("questions", "reward")]
    if not any(results["curves"].values()) or not names:
        return None
    figure, axes = panels(len(names), columns, 3.2, 2.5, sharey=False)
    for ax, name in zip(axes, names, strict=True):
        _curve(ax, results, name, labels=False)
    legend(figure, colours(results["arms"]), 2 * columns)
    return figure


def _curve(ax: Axes, results: dict[str, Any], name: str, labels: bool = True) -> None:
    ends = []
    for arm, colour in colours(results["arms"]).items():
        curve = results["curves"][arm].get("measures", {}).get(name)
        if not curve:
            continue
        steps = results["curves"][arm]["steps"]
        mean = np.array(curve["mean"], dtype=float)
        ax.fill_between(steps, curve["low"], curve["high"], color=colour, alpha=0.16, linewidth=0)
        if len(curve["runs"]) > 1:
            for values in curve["runs"].values():
                ax.plot(steps, values, color=colour, linewidth=0.6, alpha=0.35)
        ax.plot(steps, mean, color=colour, linewidth=1.9, marker="o" if len(steps) == 1 else None)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known):
            ends.append((float(mean[known[-3:]].mean()), steps[known[-1]], arm, colour))
    measure = results["measures"].get(name, {"title": name, "share": False})
    title = sentence(measure["title"])
    ax.set_title(title if labels else textwrap.fill(title, 30), fontsize=10 if labels else 9)
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if measure["share"]:
        ax.yaxis.set_major_formatter(Percent())
    ax.grid(False, axis="x")
    if labels and ends:
        _label_ends(ax, ends)


def _label_ends(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Names each line at its end, pushed apart where lines end close together."""
    low, high = ax.get_ylim()
    gap = 0.065 * (high - low)
    ends = sorted(ends)
    places = [y for y, *_ in ends]
    for _ in range(100):
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-12:
                places[i], places[i + 1] = places[i] - short / 2, places[i + 1] + short / 2
    right = max(x for _, x, *_ in ends)
    for place, (_, _, arm, colour) in zip(places, ends, strict=True):
        ax.annotate(
            short_words(arm),
            (right, place),
            (6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontweight="bold",
        )


def kinds(results: dict[str, Any], columns: int) -> Figure | None:
    """The share of each kind of question, stacked, one panel an arm."""
    parts = {arm: part for arm, part in results["kinds"].items() if part and sum(part["questions_any"]) > 0}
    titles = results["question_kinds"]
    layers = {
        kind: (colour, short_words(titles[kind])) for kind, colour in zip(titles, cycle(KIND_COLOURS), strict=False)
    }
    return _stacked(results, parts, layers, "share of questions", columns) if parts else None


def stop_reasons(results: dict[str, Any], columns: int) -> Figure | None:
    """The share of each stop reason, stacked, one panel an arm."""
    parts = {arm: part for arm, part in results["stop_reasons"].items() if part}
    reasons = {reason for part in parts.values() for reason in part["shares"]}
    failures = sorted(reasons - STOP_COLOURS.keys())
    greys = [f"#{shade:02x}{shade:02x}{shade:02x}" for shade in np.linspace(90, 200, max(1, len(failures))).astype(int)]
    order = {**{r: c for r, c in STOP_COLOURS.items() if r in reasons}, **dict(zip(failures, greys, strict=False))}
    layers = {reason: (colour, short_words(reason)) for reason, colour in order.items()}
    return _stacked(results, parts, layers, "share of dialogues", columns) if parts else None


def _stacked(
    results: dict[str, Any], parts: dict[str, Any], layers: dict[str, tuple[str, str]], label: str, columns: int
) -> Figure:
    figure, axes = panels(len(parts), columns, 3.2, 2.5, margin=(0, 0.4))
    figure.set_figwidth(max(figure.get_figwidth(), 4.2 if columns == 1 else 6.4))  # the legend's width
    palette = colours(results["arms"])
    for ax, (arm, part) in zip(axes, parts.items(), strict=True):
        steps = np.array(part["steps"])
        shares = [np.nan_to_num(np.array(part["shares"].get(k, [0.0] * len(steps)), dtype=float)) for k in layers]
        if len(steps) == 1:
            steps, shares = np.array([steps[0] - 0.5, steps[0] + 0.5]), [np.repeat(s, 2) for s in shares]
        ax.stackplot(steps, shares, colors=[colour for colour, _ in layers.values()], edgecolor="white", linewidth=0.4)
        ax.set_title(short_words(arm), color=palette[arm])
        ax.set(xlim=(steps[0], steps[-1]), ylim=(0, 1), xlabel="training step")
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.yaxis.set_major_formatter(Percent())
        ax.grid(False)
    for ax in axes[::columns]:
        ax.set_ylabel(label)
    legend(figure, {name: colour for colour, name in layers.values()}, 2 if columns == 1 else 6)
    return figure


# -- questions and reward ----------------------------------------------------------------------------------------------


def reward_by_questions(results: dict[str, Any], columns: int) -> Figure | None:
    """Mean reward of the dialogues with so many information-seeking questions; a point's area is their number."""
    if not any(results["reward_by_questions"].values()):
        return None
    figure = Figure(figsize=(3.6 * columns, 4.0))
    ax = figure.subplots()
    _points(ax, results, "reward_by_questions", columns)
    ax.set_title(_title("Reward by information-seeking questions asked", columns))
    ax.set_xlabel("questions in the dialogue")
    _references(ax, results)
    return figure


def frontier(results: dict[str, Any], columns: int) -> Figure | None:
    """Reward by informative pairs, beside what an ideal asker and a random one would get from as many questions."""
    curves = results.get("frontier") or {}
    if not curves and not any(results["reward_by_pairs"].values()):
        return None
    figure = Figure(figsize=(3.6 * columns, 4.2))
    ax = figure.subplots()
    for i, (name, curve) in enumerate(curves.items()):
        k, label = np.arange(len(curve["mean"])), {"greedy": "ideal asker", "random": "random asker"}.get(name, name)
        ax.plot(k, curve["mean"], ("-", "--", ":", "-.")[i % 4], color=INK, linewidth=1.4)
        ax.fill_between(k, curve["low"], curve["high"], color=INK, alpha=0.08, linewidth=0)
        place = (0, 4 if i % 2 == 0 else -11)
        ax.annotate(short_words(label), (k[-1], curve["mean"][-1]), place, textcoords="offset points", ha="right")
    _points(ax, results, "reward_by_pairs", columns)
    ax.set_title(_title("Reward by informative pairs, and the frontier", columns))
    ax.set_xlabel("informative pairs told in the dialogue")
    return figure


def _title(text: str, columns: int) -> str:
    return text if columns > 1 else textwrap.fill(text, 32)


def _points(ax: Axes, results: dict[str, Any], key: str, columns: int) -> None:
    """Dots of the arms, and their legend: beside the panel, or above it where there is one column."""
    drawn = {arm: [p for p in results[key][arm] if p["n"] >= 10 and p["clusters"] >= 2] for arm in results["arms"]}
    most = max((p["n"] for points in drawn.values() for p in points), default=1)
    shown = [arm for arm in results["arms"] if drawn[arm]]
    palette = colours(results["arms"])
    for i, arm in enumerate(shown):
        points = drawn[arm]
        x = np.array([p["count"] for p in points]) + 0.09 * (i - (len(shown) - 1) / 2)
        mean, low, high, n = (np.array([p[k] for p in points], dtype=float) for k in ("mean", "low", "high", "n"))
        ax.plot(x, mean, color=palette[arm], linewidth=1.0, alpha=0.6)
        ax.vlines(x, low, high, color=palette[arm], linewidth=1.3)
        ax.scatter(x, mean, s=8 + 110 * n / most, color=palette[arm], edgecolor="white", linewidth=0.6, zorder=3)
    top = int(max((p["count"] for points in drawn.values() for p in points), default=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if top >= results["many"]:
        ax.set_xticks(range(top + 1), [*map(str, range(top)), f"{top}+"])
    ax.set_ylabel("mean reward")
    ax.grid(False, axis="x")
    handles = [ax.scatter([], [], s=36, color=palette[arm], label=short_words(arm)) for arm in shown]
    if columns > 1:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), labelcolor="linecolor")
    else:
        ax.figure.legend(handles=handles, loc="outside upper left", labelcolor="linecolor")  # type: ignore[union-attr]


def _references(ax: Axes, results: dict[str, Any]) -> None:
    low, high = ax.get_ylim()
    for i, (name, reference) in enumerate((results.get("references") or {}).items()):
        value = reference["reward"]["value"]
        if reference["drawn"] and low - 0.12 <= value <= high + 0.12:
            ax.axhline(value, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
            ax.annotate(
                f"{short_words(name)} {value:.2f}", (0.02 + 0.24 * i, value), (0, 2), xycoords=("axes fraction", "data"),
                textcoords="offset points", color=INK, fontsize=7.5, zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.6},
            )  # fmt: skip


# -- trends ------------------------------------------------------------------------------------------------------------


def trends(results: dict[str, Any], columns: int) -> Figure | None:
    """Slopes by arm: dot, thick bar (over games), thin bar (over runs), and a tick a run."""
    rows = results["trends"]
    names = [
        name
        for name, m in results["measures"].items()
        if m["role"] == "primary" and any(r["measure"] == name for r in rows)
    ]
    arms = [arm for arm in results["arms"] if any(r["arm"] == arm for r in rows)]
    if not names or not arms:
        return None
    figure, axes = panels(len(names), columns, 2.5, 0.36 * len(arms) + 1.5)
    figure.set_figwidth(max(figure.get_figwidth(), 5.0))  # room for the arms' names
    palette = colours(results["arms"])
    for ax, name in zip(axes, names, strict=True):
        ax.axvline(0, color=SOFT, linewidth=0.9)
        for row in (r for r in rows if r["measure"] == name):
            y, colour = arms.index(row["arm"]), palette[row["arm"]]
            ax.plot([row["runs_low"], row["runs_high"]], [y, y], color=colour, linewidth=1.0, solid_capstyle="butt")
            ax.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=4.5, alpha=0.45, solid_capstyle="butt")
            ax.plot(row["by_run"], [y - 0.24] * len(row["by_run"]), "|", color=colour, markersize=5, alpha=0.8)
            ax.plot(row["value"], y, "o", color=colour, markersize=5.5)
        ax.set_title(textwrap.fill(sentence(results["measures"][name]["title"]), 24), fontsize=8.5)
        ax.set_xlabel(f"change {per_steps(results['per_steps'])}", fontsize=8)
        ax.grid(False, axis="y")
        ax.locator_params(axis="x", nbins=4)
    axes[0].set_yticks(range(len(arms)), [short_words(arm) for arm in arms])
    axes[0].set_ylim(len(arms) - 0.5, -0.6)
    for ax in axes[::columns]:
        for label, arm in zip(ax.get_yticklabels(), arms, strict=True):
            label.set(color=palette[arm], fontweight="bold")
    return figure


PLOTS = {
    "training": Plot(
        training, 2, 1, True,
        "Information-seeking questions a game (messages that ask about a pair or in general) and reward over training. "
        "Bands: 95% intervals, clustered by game. Thin lines: single runs.",
    ),
    "trends": Plot(
        trends, 4, 2, True,
        "Least-squares slope over training. Dot: mean of the arm's runs; ticks above it: single runs. Thick bar: 95% "
        "bootstrap interval over games, given these runs. Thin bar: 95% t interval of the mean over runs.",
    ),
    "reward_by_questions": Plot(
        reward_by_questions, 2, 1, False,
        "Mean reward of the dialogues with so many information-seeking questions, with 95% intervals clustered by game; a "
        "point's area is their number (groups of fewer than 10 dialogues or 2 games are not drawn).",
    ),
    "frontier": Plot(
        frontier, 2, 1, False,
        "Mean reward by the informative pairs (those whose score the policy asked for, was told, and did not know), beside an "
        "ideal asker, who takes the most valuable question each time, and a random one.",
    ),
    "question_kinds": Plot(
        kinds, 3, 1, True, "Kinds among the policy's questions. A message of two kinds counts for both."
    ),
    "stop_reasons": Plot(
        stop_reasons, 3, 1, True, "Why dialogues ended. Greys are failures, which have no reward."
    ),
    "measures": Plot(measures, 3, None, True, "The other measures over training; bands and lines as above."),
}  # fmt: skip
