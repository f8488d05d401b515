"""Figures over training: curves of measures, and stacked shares of question kinds and stop reasons.

Each function draws from the results dict, and returns a matplotlib Figure, or None if there is nothing to plot. Bands and bars are 95%
intervals over games.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slim_rl.analysis.figure_style import (
    KIND_COLOURS,
    SOFT,
    STOP_COLOURS,
    Percent,
    colours,
    draw_levels,
    label_ends,
    legend,
    panels,
    short_words,
)
from slim_rl.formats import NOT_MEASURED, sentence


def training(results: dict[str, Any]) -> Figure | None:
    """Draws information-seeking questions per game, and reward, over training."""
    if not any(results["curves"].values()):
        return None
    figure, (asked, reward) = panels(2, 2, 4.8, 3.7, sharey=False)
    for ax, name in ((asked, "questions"), (reward, "reward")):
        for arm, points in _held_out(results, name).items():
            steps, colour = [step for step, _ in points], colours(results["arms"])[arm]
            ax.vlines(steps, [m["low"] for _, m in points], [m["high"] for _, m in points], color=colour, linewidth=1.0)
            dots: dict[str, Any] = {"s": 22, "color": colour, "edgecolor": "white", "linewidth": 0.6, "zorder": 3}
            ax.scatter(steps, [m["value"] for _, m in points], **dots)
        curve(ax, results, name, lines=reference_rewards(results) if name == "reward" else {})
    return figure


def _held_out(results: Mapping[str, Any], name: str) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    """Returns step and mean of held-out games, for arms that played them during training with one partner."""
    by_arm = {}
    for arm in results["arms"]:
        rows = [row for row in results["checkpoints"] if row["arm"] == arm and np.isfinite(row["step"])]
        points = [(row["step"], row["measures"][name]) for row in rows if name in row["measures"]]
        if len(points) > 2 and len({row["partner"] for row in rows}) == 1:
            by_arm[arm] = points
    return by_arm


def training_caption(results: Mapping[str, Any]) -> str:
    parts = ["Information-seeking questions per game, and reward, over training; bands: 95% intervals over games."]
    if any(len(curve["runs"]) > 1 for curve in _curves_of(results, "reward")):
        parts.append("Thin lines: single runs.")
    if _held_out(results, "reward"):
        parts.append("Dots: held-out games.")
    if reference_rewards(results):
        parts.append("Dotted: plans made without a dialogue.")
    return " ".join(parts)


def _curves_of(results: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Returns a measure's curves, one per arm that has it."""
    curves = (arm.get("measures", {}).get(name) for arm in results["curves"].values())
    return [curve for curve in curves if curve]


def _is_flat(results: Mapping[str, Any], name: str) -> bool:
    """Returns True if a measure is 0 everywhere."""
    return not np.any(np.nan_to_num([value for each in _curves_of(results, name) for value in each["mean"]]))


def _others(results: Mapping[str, Any]) -> list[str]:
    """Returns the measures to draw as small multiples."""
    return [name for name in results["measures"] if name not in ("questions", "reward") and not _is_flat(results, name)]


def measures_caption(results: Mapping[str, Any]) -> str:
    flat = [
        about["title"]
        for name, about in results["measures"].items()
        if name not in ("questions", "reward") and _is_flat(results, name)
    ]
    zero = f" Zero throughout, and not drawn: {', '.join(flat)}." if flat else ""
    return f"Other measures over training; bands: 95% intervals over games.{zero}"


def measures(results: dict[str, Any]) -> Figure | None:
    """Draws all other measures over training, as small multiples."""
    names = _others(results)
    if not any(results["curves"].values()) or not names:
        return None
    figure, axes = panels(len(names), 3, 3.2, 2.5, sharey=False)
    for ax, name in zip(axes, names, strict=True):
        curve(ax, results, name, labels=False)
    legend(figure, colours(results["arms"]))
    return figure


def curve(
    ax: Axes, results: Mapping[str, Any], name: str, labels: bool = True, lines: Mapping[str, float] | None = None
) -> None:
    """Draws a measure over training per arm: mean, interval if known, and thin lines for single runs.

    Args:
        results: dict with `arms`, `curves` as `summary` makes them, and `measures` for the titles.
        labels: whether to label each line at its end.
        lines: levels to draw, by name, if they lie near the data; None: none.
    """
    ends = []
    for arm, colour in colours(results["arms"]).items():
        points = results["curves"][arm].get("measures", {}).get(name)
        if not points:
            continue
        steps = results["curves"][arm]["steps"]
        mean = np.array(points["mean"], dtype=float)
        if "low" in points:
            ax.fill_between(steps, points["low"], points["high"], color=colour, alpha=0.16, linewidth=0)
        if len(points["runs"]) > 1:
            for values in points["runs"].values():
                ax.plot(steps, values, color=colour, linewidth=0.6, alpha=0.35)
        ax.plot(steps, mean, color=colour, linewidth=1.9, marker="o" if len(steps) == 1 else None)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known):
            ends.append((float(mean[known[-3:]].mean()), short_words(arm), colour))
    if not ends:
        ax.text(0.5, 0.5, NOT_MEASURED, transform=ax.transAxes, color=SOFT, ha="center")
    measure = results["measures"].get(name, {"title": name, "unit": "", "share": False})
    title = sentence(measure["title"])
    ax.set_title(title if labels else textwrap.fill(title, 30))
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if measure["share"]:
        ax.yaxis.set_major_formatter(Percent())
    else:
        ax.set_ylabel(measure["unit"])
    ax.grid(False, axis="x")
    _fit(ax)
    ends += draw_levels(ax, lines or {})
    if labels and ends:
        label_ends(ax, ends)


def _fit(ax: Axes) -> None:
    """Starts the axis of non-negative data at 0, and gives all-zero data a scale of 1."""
    ax.autoscale(axis="y")  # panels may share it, and the limits of the one before are fixed
    low, high = ax.dataLim.intervaly
    if low >= 0:
        ax.set_ylim(0 if ax.get_ylim()[0] < 0 or high == 0 else None, 1 if high == 0 else None)


def kinds(results: dict[str, Any]) -> Figure | None:
    """Draws the shares of the kinds of questions, one panel per arm."""
    parts = {arm: part for arm, part in results["kinds"].items() if part and sum(part["questions_any"]) > 0}
    titles = results["question_kinds"]
    layers = {
        kind: (colour, short_words(titles[kind])) for kind, colour in zip(titles, cycle(KIND_COLOURS), strict=False)
    }
    return _stacked(results, parts, layers, "share of questions") if parts else None


def stop_reasons(results: dict[str, Any]) -> Figure | None:
    """Draws the shares of the stop reasons, one panel per arm."""
    parts = {arm: part for arm, part in results["stop_reasons"].items() if part}
    reasons = {reason for part in parts.values() for reason in part["shares"]}
    failures = sorted(reasons - STOP_COLOURS.keys())
    greys = [f"#{shade:02x}{shade:02x}{shade:02x}" for shade in np.linspace(90, 200, max(1, len(failures))).astype(int)]
    order = {**{r: c for r, c in STOP_COLOURS.items() if r in reasons}, **dict(zip(failures, greys, strict=False))}
    layers = {reason: (colour, short_words(reason)) for reason, colour in order.items()}
    return _stacked(results, parts, layers, "share of dialogues") if parts else None


def _stacked(results: dict[str, Any], parts: dict[str, Any], layers: dict[str, tuple[str, str]], label: str) -> Figure:
    figure, axes = panels(len(parts), 3, 3.2, 2.5, margin=(0, 0.4))
    figure.set_figwidth(max(figure.get_figwidth(), 6.4))  # the legend's width
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
    for ax in axes[::3]:
        ax.set_ylabel(label)
    legend(figure, {name: colour for colour, name in layers.values()})
    return figure


def reference_rewards(results: Mapping[str, Any]) -> dict[str, float]:
    """Returns the rewards of the game's reference lines, by name."""
    lines = (results.get("references") or {}).items()
    return {name: line["reward"]["value"] for name, line in lines if line["drawn"]}
