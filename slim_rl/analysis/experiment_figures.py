"""Figures of an experiment's page. An arm has one colour in all of them; thin lines and small dots are single seeds."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slim_rl.analysis.contrasts import HELD_OUT, Contrasts
from slim_rl.analysis.experiment import Plays
from slim_rl.analysis.figure_style import SOFT, colours, legend, panels, short_words
from slim_rl.dialogue.measures import MEASURES, shown_in
from slim_rl.formats import sentence, words

Rows = Sequence[dict[str, Any]]


def draw(plays: Plays, contrasts: Contrasts, rows: Rows) -> dict[str, Figure]:
    """Every figure that has something to show, by file name. `rows`: those of `experiment.by_arm`."""
    figures = {
        "primary": _primary(plays, contrasts),
        "arms": _arms(plays, rows),
        **{measure.name: _training(plays, measure.name) for measure in shown_in("experiment")},
        "doses": _doses(plays, contrasts),
        "forced": _forced(plays, rows),
        "transfer": _transfer(plays, rows),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _panels(number: int, height: float = 2.5, sharey: bool = True) -> tuple[Figure, list[Axes]]:
    return panels(number, 4, 2.9, height, margin=(0.4, 0.3), sharey=sharey)


def _primary(plays: Plays, contrasts: Contrasts) -> Figure | None:
    """The arms that primary contrasts set side by side, over training: thin lines are seeds, thick ones their means."""
    sides = [
        side for spec in contrasts.contrasts if spec.role == "primary" and spec.b is not None for side in spec.sides
    ]
    arms = [arm for arm in dict.fromkeys(side.arm for side in sides) if arm in set(plays.training.get("arm", ()))]
    if len(arms) < 2:
        return None
    chosen = {arm: colours(plays.arms)[arm] for arm in arms}
    chief = [measure.name for measure in shown_in("experiment")]
    figure, axes = _panels(len(chief), 3.2, sharey=False)
    for ax, measure in zip(axes, chief, strict=True):
        for arm, colour in chosen.items():
            curves = _curves(plays, arm, measure)
            ax.plot(curves.index, curves, color=colour, linewidth=0.6, alpha=0.35)
            ax.plot(curves.index, curves.mean(axis=1), color=colour, linewidth=2.2)
        ax.set_title(_title(measure))
        ax.set_xlabel("training step")
    legend(figure, chosen)
    return figure


def _curves(plays: Plays, arm: str, measure: str) -> pd.DataFrame:
    """Steps by runs, smoothed a little."""
    rows = plays.training[plays.training["arm"] == arm]
    curves = rows.pivot(index="step", columns="run", values=measure)
    return curves.rolling(max(1, len(curves) // 20), min_periods=1).mean()


def _title(measure: str) -> str:
    return textwrap.fill(sentence(MEASURES[measure].title), 26)


def _arms(plays: Plays, rows: Rows) -> Figure | None:
    """Where each arm ended on held-out games: intervals over seeds and games, small dots for single seeds, hollow ones for the start."""
    after = plays.held_out[(plays.held_out["condition"] == HELD_OUT) & (plays.held_out["when"] == "after")]
    arms = [arm for arm in plays.arms if arm in set(after["arm"])]
    if not arms:
        return None
    measures = [measure.name for measure in shown_in("experiment") if measure.name in after]
    figure = Figure(figsize=(9.6, 0.32 * len(arms) + 0.9))
    axes = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for ax, measure in zip(axes, measures, strict=True):
        seeds = after.groupby(["arm", "run"])[measure].mean()
        found = {row["arm"]: row for row in rows if (row["condition"], row["measure"]) == (HELD_OUT, measure)}
        for place, arm in enumerate(arms):
            ax.plot(seeds[arm], [place] * len(seeds[arm]), "o", color=SOFT, markersize=3, alpha=0.6)
            if row := found.get(arm):
                colour = colours(plays.arms)[arm]
                ax.plot([row["after_low"], row["after_high"]], [place, place], color=colour, linewidth=2.5)
                ax.plot(row["before"], place, "o", color=colour, markerfacecolor="white", markersize=5)
                ax.plot(row["after"], place, "o", color=colour, markersize=6)
        ax.set_yticks(range(len(arms)), [short_words(arm) for arm in arms])
        ax.set_title(_title(measure))
    axes[0].invert_yaxis()
    return figure


def _training(plays: Plays, measure: str) -> Figure | None:
    """A measure over training, one panel an arm."""
    if plays.training.empty:
        return None
    figure, axes = _panels(len(plays.arms))
    for ax, (arm, colour) in zip(axes, colours(plays.arms).items(), strict=True):
        curves = _curves(plays, arm, measure)
        ax.plot(curves.index, curves, color=colour, linewidth=0.7, alpha=0.5)
        ax.plot(curves.index, curves.mean(axis=1), color=colour, linewidth=2.2)
        ax.set_title(short_words(arm))
        ax.set_xlabel("training step")
    figure.suptitle(sentence(MEASURES[measure].title), x=0.01, ha="left", fontsize=10)
    return figure


def _doses(plays: Plays, contrasts: Contrasts) -> Figure | None:
    """What runs did against their dose, one panel a trend that was written down."""
    specs = [spec for spec in contrasts.contrasts if spec.doses]
    found = [
        (spec, {dose: plays.table(side, spec.measure).mean(axis=1) for dose, side in spec.doses}) for spec in specs
    ]
    found = [(spec, points) for spec, points in found if any(len(values) for values in points.values())]
    if not found:
        return None
    figure, axes = _panels(len(found), 3.0, sharey=False)
    for ax, (spec, points) in zip(axes, found, strict=True):
        means = pd.Series({dose: values.mean() for dose, values in sorted(points.items())}).dropna()
        for dose, values in points.items():
            ax.plot([dose] * len(values), values, "o", color=SOFT, markersize=3, alpha=0.6)
        ax.plot(means.index, means, "o-", color="#0072B2", linewidth=1.9)
        ax.set_title(textwrap.fill(spec.name, 26))
        ax.set_xlabel("dose")
        ax.set_ylabel(words(spec.measure))
    return figure


def _forced(plays: Plays, rows: Rows) -> Figure | None:
    """Reward after so many questions asked for the policy, before (dashed) and after training."""
    names = [name for name in plays.held_out["condition"].unique() if re.fullmatch(r"forced_\d+", name)]
    conditions = dict(
        sorted((int(name.removeprefix("forced_")), name) for name in names)
    )  # questions asked -> condition
    found = {(row["arm"], row["condition"]): row for row in rows if row["measure"] == "reward"}
    arms = [arm for arm in plays.arms if any((arm, name) in found for name in conditions.values())]
    if not arms:
        return None
    figure, axes = _panels(len(arms), 2.8)
    for ax, arm in zip(axes, arms, strict=True):
        for when, style in (("before", "--"), ("after", "-")):
            part = [(k, found[arm, name]) for k, name in conditions.items() if (arm, name) in found]
            k, y = [k for k, _ in part], np.array([row[when] for _, row in part])
            ends = np.array([[row[f"{when}_low"], row[f"{when}_high"]] for _, row in part]).T
            ax.errorbar(
                k, y, np.abs(ends - y), fmt="o" + style, color=colours(plays.arms)[arm], capsize=2, markersize=3
            )
        ax.set_title(short_words(arm))
        ax.set_xlabel("questions asked for it")
    axes[0].set_ylabel("reward")
    return figure


def _transfer(plays: Plays, rows: Rows) -> Figure | None:
    """Reward and questions before (hollow) and after in conditions that no run was trained in."""
    conditions = [name for name in dict.fromkeys(row["condition"] for row in rows) if not name.startswith("forced_")]
    arms = [arm for arm in plays.arms if any(row["arm"] == arm and row["condition"] != HELD_OUT for row in rows)]
    if len(conditions) < 2 or not arms:
        return None
    figure = Figure(figsize=(9.6, 0.45 * len(conditions) * max(1, len(arms) / 2) + 1.2))
    for ax, measure in zip(figure.subplots(1, 2, sharey=True), ("questions", "reward"), strict=True):
        for row in rows:
            if row["measure"] != measure or row["arm"] not in arms or row["condition"] not in conditions:
                continue
            place = conditions.index(row["condition"]) + 0.7 * (arms.index(row["arm"]) / len(arms) - 0.35)
            colour = colours(plays.arms)[row["arm"]]
            ax.plot([row["before"], row["after"]], [place, place], color=colour, linewidth=0.8)
            ax.plot(row["before"], place, "o", color=colour, markerfacecolor="white", markersize=5)
            ax.plot([row["after_low"], row["after_high"]], [place, place], color=colour, linewidth=2.5)
            ax.plot(row["after"], place, "o", color=colour, markersize=5)
        ax.set_yticks(range(len(conditions)), [short_words(name) for name in conditions])
        ax.set_title(sentence(MEASURES[measure].title))
    figure.axes[0].invert_yaxis()
    legend(figure, {arm: colours(plays.arms)[arm] for arm in arms})
    return figure
