"""Figures of an experiment.

An arm has one colour in all of them; thin lines and small dots are single seeds. Each function returns a matplotlib Figure, or None if
there is nothing to plot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from slim_rl.analysis.figures import INK, SOFT, Plot, colours, curve, legend, panels, short
from slim_rl.analysis.held_out import comparable
from slim_rl.dialogue.measures import shown_in
from slim_rl.formats import sentence
from slim_rl.lab.experiment import TEXTS, baseline
from slim_rl.lab.experiment.contrasts import HELD_OUT, Contrasts, Outcome
from slim_rl.lab.measures import NET_REWARD

if TYPE_CHECKING:
    from slim_rl.lab.experiment.results import Plays

Rows = Sequence[dict[str, Any]]


def _compared(contrasts: Contrasts, among: Collection[str]) -> list[str]:
    """Returns the measures of the primary contrasts and questions, or the main measures if there are no such contrasts."""
    primary = [spec.measure for spec in contrasts.contrasts if spec.role == "primary"]
    main = [*primary, "questions"] if primary else [measure.name for measure in shown_in("experiment")]
    return [name for name in dict.fromkeys(main) if name in among]


def _training(plays: Plays, contrasts: Contrasts, rows: Rows) -> Figure | None:
    """Draws the arms that primary contrasts compare, else all, over training."""
    between = [spec for spec in contrasts.contrasts if spec.role == "primary" and isinstance(spec.b, Outcome)]
    trained = set(plays.training["arm"])
    arms = trained & {side.arm for spec in between for side in spec.outcomes} or trained
    if not arms:
        return None
    measures = _compared(contrasts, plays.training)
    figure, axes = panels(len(measures), 2 if len(measures) == 4 else 3, 4.4, 3.5)
    for ax, measure in zip(axes, measures, strict=True):
        curve(ax, training_curves(plays, arms, measure), measure)
    legend(figure, {arm: colour for arm, colour in colours(plays.arms).items() if arm in arms})
    return figure


def training_curves(plays: Plays, arms: set[str], measure: str) -> dict[str, Any]:
    """Returns the measure over training in these arms, slightly smoothed, for `curve`."""
    curves: dict[str, Any] = {arm: {} for arm in plays.arms}
    for arm in arms:
        rows = plays.training[plays.training["arm"] == arm]
        table = rows.pivot(index="step", columns="run", values=measure)
        table = table.rolling(max(1, len(table) // 20), min_periods=1).mean()
        runs = {run: table[run].tolist() for run in table}
        curves[arm] = {"steps": table.index.tolist(), "measures": {measure: {"mean": table.mean(axis=1), "runs": runs}}}
    return {"arms": plays.arms, "curves": curves, "measures": {measure: comparable()[measure].about}}


def _arms(plays: Plays, contrasts: Contrasts, rows: Rows) -> Figure | None:
    """Draws each arm's held-out results: intervals over seeds and games, single seeds (small), initial policies (hollow)."""
    after = plays.held_out[(plays.held_out["condition"] == HELD_OUT) & (plays.held_out["when"] == "after")]
    arms = [arm for arm in plays.arms if arm in set(after["arm"])]
    if not arms:
        return None
    measures = _compared(contrasts, after)
    figure = Figure(figsize=(max(9.6, 2.6 * len(measures)), 0.32 * len(arms) + 0.9))
    axes = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for ax, measure in zip(axes, measures, strict=True):
        seeds = after.groupby(["arm", "run"])[measure].mean()
        by_arm = {row["arm"]: row for row in rows if (row["condition"], row["measure"]) == (HELD_OUT, measure)}
        for place, arm in enumerate(arms):
            ax.plot(seeds[arm], [place] * len(seeds[arm]), "o", color=SOFT, markersize=3, alpha=0.6)
            if row := by_arm.get(arm):
                colour = colours(plays.arms)[arm]
                ax.plot([row["after_low"], row["after_high"]], [place, place], color=colour, linewidth=2.5)
                ax.plot(row["before"], place, "o", color=colour, markerfacecolor="white", markersize=5)
                ax.plot(row["after"], place, "o", color=colour, markersize=6)
        ax.set_yticks(range(len(arms)), [short(arm) for arm in arms])
        ax.set_title(textwrap.fill(sentence(comparable()[measure].heading), 26))
    axes[0].invert_yaxis()
    return figure


def _points(plays: Plays) -> baseline.Points:
    """Returns the points of an experiment with conditions forced_1, forced_2, ..., played by the treatment's initial policy."""
    frame = plays.held_out
    held_out = frame[frame["condition"] == HELD_OUT]
    before = frame[(frame["arm"] == plays.arms[0]) & (frame["when"] == "before")]
    forced = before[before["condition"].str.fullmatch(r"forced_\d+")]
    initial, after = before[before["condition"] == HELD_OUT], held_out[held_out["when"] == "after"]
    return baseline.points_of(forced, "condition", initial, after)


def _baseline(plays: Plays, contrasts: Contrasts, rows: Rows) -> Figure | None:
    """Draws the forced-question baseline of the treatment."""
    arm = plays.arms[0]
    return baseline.figure(_points(plays), {arm: colours(plays.arms)[arm]})


_ASKERS = {"greedy": ("best questions", "-"), "random": ("random questions", "--")}


def _frontier(plays: Plays, contrasts: Contrasts, rows: Rows) -> Figure | None:
    """Draws net reward against the number of questions, for simulated askers, the initial policy and trained runs.

    Shows the arms that contrasts on net reward compare, else all. Other arms may play another game than the askers, such as an open book.
    """
    askers, points = plays.askers, _points(plays)
    if askers.empty or not points["trained"]:
        return None
    net = [spec for spec in contrasts.contrasts if spec.measure == NET_REWARD.name]
    shown = {side.arm for spec in net for side in spec.outcomes} or set(plays.arms)
    palette = {arm: colours(plays.arms)[arm] for arm in plays.arms if arm in shown & points["trained"].keys()}
    price = float(askers["price"].iloc[0])
    (ideal,) = askers[askers["asker"] == "ideal"].to_dict(orient="records") or [None]
    drawn = [*points["forced"], points["initial"], ideal, *(run for arm in palette for run in points["trained"][arm])]
    limit = 1 + np.ceil(max(one["questions"] for one in drawn if one))
    figure = Figure(figsize=(7.2, 4.4))
    ax = figure.subplots()
    for name, (label, style) in _ASKERS.items():
        curve = askers[(askers["asker"] == name) & (askers["questions"] <= limit)]
        ax.plot(curve["questions"], curve["net_reward"], style, color=INK, linewidth=1.4, label=label)
        ax.fill_between(curve["questions"], curve["low"], curve["high"], color=INK, alpha=0.08, linewidth=0)
    if ideal:
        ax.plot(ideal["questions"], ideal["net_reward"], "*", color=INK, markersize=11, label="ideal asker")
    for value in askers[(askers["asker"] == "random") & (askers["questions"] == 0)]["net_reward"]:
        ax.axhline(value, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)), label="no questions", zorder=1)
    baseline.draw(ax, points, palette, "questions", price)
    ax.set_xlabel("questions per game")
    ax.set_ylabel(f"net reward, question cost {price:.3g}" if price else "reward")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


# by file name; drawn from the plays, the contrasts and the rows of `held_out.by_arm`
PLOTS = {
    name: Plot(draw, TEXTS["figures"][name])
    for name, draw in {"training": _training, "arms": _arms, "baseline": _baseline, "frontier": _frontier}.items()
}
