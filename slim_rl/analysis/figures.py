"""Figures, drawn from the results dict alone. Each function returns one matplotlib Figure, or None where it has nothing
to show.

An arm is labelled where it is drawn. Bands and bars are 95% intervals over games.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slim_rl.analysis.alt_texts import in_words, others_in_words, shares_in_words
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
from slim_rl.formats import NOT_MEASURED, sentence


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of a page.

    Attributes:
        draw: makes it from the page's numbers; None where there is nothing to show.
        caption: what is there, in words; or what makes it from the page's numbers.
        wide: it takes the page's whole width.
        folded: a heading, under which it is folded away until a reader asks for it; "": it is not.
        says: in words and from the same numbers, what is to be seen; without it the caption's first sentence must do.
    """

    draw: Callable[..., Figure | None]
    caption: str | Callable[..., str]
    wide: bool = True
    folded: str = ""
    says: Callable[..., str] | None = None

    def text(self, *numbers: Any) -> str:
        return self.caption if isinstance(self.caption, str) else self.caption(*numbers)

    def alt(self, *numbers: Any) -> str:
        return self.says(*numbers) if self.says else f"Chart: {self.text(*numbers).partition('. ')[0].rstrip('.')}."


# -- over training -----------------------------------------------------------------------------------------------------


def training(results: dict[str, Any]) -> Figure | None:
    """Information-seeking questions a game, and reward."""
    if not any(results["curves"].values()):
        return None
    figure, (asked, reward) = panels(2, 2, 4.8, 3.7, sharey=False)
    for ax, name in ((asked, "questions"), (reward, "reward")):
        for arm, points in _held_out(results, name).items():
            steps, colour = [step for step, _ in points], colours(results["arms"])[arm]
            ax.vlines(steps, [m["low"] for _, m in points], [m["high"] for _, m in points], color=colour, linewidth=1.0)
            dots: dict[str, Any] = {"s": 22, "color": colour, "edgecolor": "white", "linewidth": 0.6, "zorder": 3}
            ax.scatter(steps, [m["value"] for _, m in points], **dots)
        curve(ax, results, name, lines=_references(results) if name == "reward" else {})
    return figure


def _held_out(results: Mapping[str, Any], name: str) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    """Returns step and mean of the held-out games, of arms that played them during training too, with one partner."""
    found = {}
    for arm in results["arms"]:
        rows = [row for row in results["checkpoints"] if row["arm"] == arm and np.isfinite(row["step"])]
        points = [(row["step"], row["measures"][name]) for row in rows if name in row["measures"]]
        if len(points) > 2 and len({row["partner"] for row in rows}) == 1:
            found[arm] = points
    return found


def _training_caption(results: Mapping[str, Any]) -> str:
    parts = ["Information-seeking questions per game, and reward, over training; bands: 95% intervals over games."]
    if any(len(found["runs"]) > 1 for found in _curves_of(results, "reward")):
        parts.append("Thin lines: single runs.")
    if _held_out(results, "reward"):
        parts.append("Dots: held-out games.")
    if _references(results):
        parts.append("Dotted: plans made without a dialogue.")
    return " ".join(parts)


def _curves_of(results: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Returns a measure's curve of each arm that has one."""
    found = (curves.get("measures", {}).get(name) for curves in results["curves"].values())
    return [each for each in found if each]


def _is_flat(results: Mapping[str, Any], name: str) -> bool:
    """Returns True if a measure is 0 at each point of each arm."""
    return not np.any(np.nan_to_num([value for each in _curves_of(results, name) for value in each["mean"]]))


def _others(results: Mapping[str, Any]) -> list[str]:
    """Returns the measures that are drawn as small multiples."""
    return [name for name in results["measures"] if name not in ("questions", "reward") and not _is_flat(results, name)]


def _measures_caption(results: Mapping[str, Any]) -> str:
    flat = [
        about["title"]
        for name, about in results["measures"].items()
        if name not in ("questions", "reward") and _is_flat(results, name)
    ]
    none = f" Zero throughout, and not drawn: {', '.join(flat)}." if flat else ""
    return f"The other measures over training; bands: 95% intervals over games.{none}"


def measures(results: dict[str, Any]) -> Figure | None:
    """Every other measure over training, as small multiples."""
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
    """A measure of every arm over training: its mean, its interval where it has one, and thin lines for single runs.

    Args:
        results: `arms`; `curves` as `summary` makes them; `measures`, for the titles.
        labels: name each line to the right of the panel.
        lines: levels to draw beside, by name, as far as they lie near what is drawn.
    """
    ends = []
    for arm, colour in colours(results["arms"]).items():
        found = results["curves"][arm].get("measures", {}).get(name)
        if not found:
            continue
        steps = results["curves"][arm]["steps"]
        mean = np.array(found["mean"], dtype=float)
        if "low" in found:
            ax.fill_between(steps, found["low"], found["high"], color=colour, alpha=0.16, linewidth=0)
        if len(found["runs"]) > 1:
            for values in found["runs"].values():
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
    ends += _drawn_lines(ax, lines or {})
    if labels and ends:
        _label_ends(ax, ends)


def _fit(ax: Axes) -> None:
    """Ends the axis of what is never negative at 0, and gives data that are all 0 a scale of 1."""
    low, high = ax.dataLim.intervaly
    if low >= 0:
        ax.set_ylim(0 if ax.get_ylim()[0] < 0 or high == 0 else None, 1 if high == 0 else None)


def _drawn_lines(ax: Axes, lines: Mapping[str, float]) -> list[tuple[float, str, str]]:
    """Draws the levels that lie near what is drawn. Returns them as ends of lines."""
    low, high = ax.get_ylim()
    near = {name: value for name, value in lines.items() if low - 0.12 <= value <= high + 0.12}
    for value in near.values():
        ax.axhline(value, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    return [(value, f"{short_words(name)} {value:.2f}", SOFT) for name, value in near.items()]


def _label_ends(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names each line right of the panel, pushed apart where lines end close together."""
    low, high = ax.get_ylim()
    gap = 0.065 * (high - low)
    ends = sorted(ends)
    places = [y for y, *_ in ends]
    for _ in range(100):
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-12:
                places[i], places[i + 1] = places[i] - short / 2, places[i + 1] + short / 2
    for place, (_, label, colour) in zip(places, ends, strict=True):
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        ax.annotate(label, (1.0, place), (4, 0), color=colour, annotation_clip=False, **where)


def kinds(results: dict[str, Any]) -> Figure | None:
    """The share of each kind of question, stacked, one panel an arm."""
    parts = {arm: part for arm, part in results["kinds"].items() if part and sum(part["questions_any"]) > 0}
    titles = results["question_kinds"]
    layers = {
        kind: (colour, short_words(titles[kind])) for kind, colour in zip(titles, cycle(KIND_COLOURS), strict=False)
    }
    return _stacked(results, parts, layers, "share of questions") if parts else None


def stop_reasons(results: dict[str, Any]) -> Figure | None:
    """The share of each stop reason, stacked, one panel an arm."""
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


# -- questions and reward ----------------------------------------------------------------------------------------------


def reward_by_questions(results: dict[str, Any]) -> Figure | None:
    """Mean reward of the dialogues with so many information-seeking questions; a point's area is their number."""
    if not any(results["reward_by_questions"].values()):
        return None
    figure = Figure(figsize=(5.4, 3.8))
    ax = figure.subplots()
    _points(ax, results, "reward_by_questions")
    ax.set_title("Reward by information-seeking questions asked")
    ax.set_xlabel("questions in the dialogue")
    if lines := _drawn_lines(ax, _references(results)):
        _label_ends(ax, lines)
    return figure


def frontier(results: dict[str, Any]) -> Figure | None:
    """Reward by informative pairs, beside what an ideal asker and a random one would get from as many questions."""
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
    ax.set_xlabel("informative pairs told in the dialogue")
    return figure


def _points(ax: Axes, results: dict[str, Any], key: str) -> None:
    """Dots of the arms, and above the panel a legend of them and of the lines that are drawn already."""
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
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
    assert ax.figure is not None
    ax.figure.legend(handles=[*handles, *lines], loc="outside lower left", ncols=3, labelcolor="linecolor")


def _references(results: Mapping[str, Any]) -> dict[str, float]:
    """Returns the game's reference lines, by name."""
    found = (results.get("references") or {}).items()
    return {name: line["reward"]["value"] for name, line in found if line["drawn"]}


PLOTS = {
    "training": Plot(
        training,
        _training_caption,
        says=in_words("questions", "reward"),
    ),
    "reward_by_questions": Plot(
        reward_by_questions,
        "Mean reward of the dialogues with so many information-seeking questions, with 95% intervals over games; a "
        "point's area is their number (groups of fewer than 10 dialogues or 2 games are not drawn).",
        wide=False,
    ),
    "frontier": Plot(
        frontier,
        "Mean reward by the informative pairs (those whose score the policy asked for, was told, and did not know), beside an "
        "ideal asker, who takes the most valuable question each time, and a random one; 95% intervals over games.",
        wide=False,
    ),
    "question_kinds": Plot(
        kinds,
        "Kinds among the policy's questions. A message of two kinds counts for both.",
        says=shares_in_words("kinds"),
    ),
    "stop_reasons": Plot(
        stop_reasons,
        "Why dialogues ended. Greys are failures, which have no reward.",
        says=shares_in_words("stop_reasons"),
    ),
    "measures": Plot(measures, _measures_caption, folded="Other measures over training", says=others_in_words),
}
