"""Figures of the log report, drawn from its numbers, and the style and export that all figures share.

Each `draw` returns a matplotlib Figure, or None if there is nothing to plot. Bands and bars are 95% intervals over games. An arm has one
colour in every figure; colours are Okabe and Ito's, chosen for the colour-blind. The same numbers give the same bytes.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from slim_rl.analysis.tables import TEXTS
from slim_rl.formats import NOT_MEASURED, sentence, words

ARM_COLOURS = {
    "shy": "#0072B2",
    "forthcoming": "#D55E00",
    "mute": "#5B5B5B",
    "shuffled_reward": "#CC79A7",
    "frozen_policy": "#009E73",
}
SPARE_COLOURS = ("#E69F00", "#56B4E9", "#8C6D31", "#882255", "#117733", "#332288")
LAYER_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#B8B8B8", "#009E73", "#CC79A7", "#8C6D31", "#882255")
INK, SOFT = "#222222", "#6B6B6B"
_CAPTIONS = TEXTS["figures"]
_STYLE = Path(__file__).with_name("page") / "figures.mplstyle"
_UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


@dataclass(frozen=True, slots=True)
class Plot:
    """Figure of a page.

    Attributes:
        draw: function from the page's numbers to the figure, or to None if there is nothing to plot.
        caption: caption.
        wide: whether the figure takes the page's full width.
    """

    draw: Callable[..., Figure | None]
    caption: str
    wide: bool = True


def style() -> AbstractContextManager[None]:
    """Applies the style on top of matplotlib's defaults, ignoring a user's matplotlibrc; draw and save inside it."""
    return matplotlib.rc_context(fname=_STYLE)


def to_bytes(figure: Figure, form: str) -> bytes:
    """Returns the figure as a file of this form ("png", "svg" or "pdf"); the same bytes for the same figure.

    The layout, which takes longer than drawing, is computed once for all forms.
    """
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    figure.dpi = matplotlib.rcParams["savefig.dpi"]
    file = io.BytesIO()
    # `savefig` draws twice, for a layout that is there already
    getattr(get_registered_canvas_class(form)(figure), f"print_{form}")(file, metadata=_UNDATED[form])
    return file.getvalue()


def panels(number: int, columns: int, width: float, height: float, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """Returns a figure of `number` panels, each `width` by `height` inches, at most `columns` per row."""
    columns = min(columns, number)
    rows = -(-number // columns)
    figure = Figure(figsize=(max(width * columns, 6.4), height * rows + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for ax in axes[number:]:
        ax.axis("off")
    return figure, list(axes[:number])


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Returns a colour per arm."""
    spare = cycle(SPARE_COLOURS)
    return {arm: ARM_COLOURS.get(arm) or next(spare) for arm in arms}


def legend(figure: Figure, entries: Mapping[str, str], lines: Sequence[Any] = ()) -> None:
    """Adds a legend above the figure: name -> colour, and labelled lines."""
    handles = [*(Patch(color=colour, label=short(name)) for name, colour in entries.items()), *lines]
    # a label has 6 letters more for its patch and gaps, an inch about 11
    width = 6 + max((len(str(each.get_label())) for each in handles), default=0)
    columns = max(1, min(5, len(handles), int(11 * figure.get_figwidth() / width)))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.2)


def short(name: str) -> str:
    """Returns a name as words, at most 28 characters."""
    text = words(name)
    return text if len(text) <= 28 else text[:27] + "…"


# -- over training -----------------------------------------------------------------------------------------------------


def training(results: Mapping[str, Any]) -> Figure | None:
    """Draws questions and reward over training, with held-out games as dots, and reference rewards."""
    if not any(results["curves"].values()):
        return None
    figure, axes = panels(2, 2, 4.8, 3.7)
    for ax, name in zip(axes, ("questions", "reward"), strict=True):
        curve(ax, results, name)
        for arm, points in _checkpoints(results, name).items():
            steps, means = zip(*points, strict=True)
            ends = [m["low"] for m in means], [m["high"] for m in means]
            ax.vlines(steps, *ends, color=colours(results["arms"])[arm], linewidth=1.0)
            ax.scatter(steps, [m["value"] for m in means], s=22, color=colours(results["arms"])[arm], zorder=3)
    levels(axes[1], results)
    legend(figure, colours(results["arms"]))
    return figure


def training_by_partner(results: Mapping[str, Any]) -> Figure | None:
    """Draws questions and reward over training per partner of a mixture."""
    one = len(results["arms"]) == 1
    curves = {
        row["partner"] if one else f"{row['arm']}, {row['partner']}": row["curves"] for row in results["by_partner"]
    }
    if not any(curves.values()):
        return None
    figure, axes = panels(2, 2, 4.8, 3.7)
    for ax, name in zip(axes, ("questions", "reward"), strict=True):
        curve(ax, {**results, "arms": list(curves), "curves": curves}, name)
    legend(figure, colours(list(curves)))
    return figure


def _checkpoints(results: Mapping[str, Any], name: str) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    """Returns step and mean of held-out games, for arms that played them during training with one partner."""
    by_arm = {}
    for arm in results["arms"]:
        rows = [row for row in results["checkpoints"] if row["arm"] == arm and np.isfinite(row["step"])]
        points = [(row["step"], row["measures"][name]) for row in rows if name in row["measures"]]
        if len(points) > 2 and len({row["partner"] for row in rows}) == 1:
            by_arm[arm] = points
    return by_arm


def curve(ax: Axes, results: Mapping[str, Any], name: str, width: int = 40) -> None:
    """Draws a measure over training per arm: mean, interval if known, and thin lines for single runs.

    Args:
        results: dict with `arms`, `curves` as `summary` makes them, and `measures` for the titles.
        width: characters per line of the title that fit the panel.
    """
    for arm, colour in colours(results["arms"]).items():
        points = results["curves"][arm].get("measures", {}).get(name)
        if not points:
            continue
        steps = results["curves"][arm]["steps"]
        if "low" in points:
            ax.fill_between(steps, points["low"], points["high"], color=colour, alpha=0.16, linewidth=0)
        for values in points["runs"].values() if len(points["runs"]) > 1 else ():
            ax.plot(steps, values, color=colour, linewidth=0.6, alpha=0.35)
        ax.plot(steps, points["mean"], color=colour, linewidth=1.9, marker="o" if len(steps) == 1 else None)
    if not ax.lines or not np.isfinite(ax.dataLim.intervaly).all():
        ax.text(0.5, 0.5, NOT_MEASURED, transform=ax.transAxes, color=SOFT, ha="center")
    measure = results["measures"].get(name, {"title": name, "unit": "", "share": False})
    ax.set_title(textwrap.fill(sentence(measure["title"]), width))
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_ylabel("" if measure["share"] else measure["unit"])
    if measure["share"]:
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.autoscale(axis="y")  # panels may share it, and the limits of the one before are fixed
    low, high = ax.dataLim.intervaly
    if low >= 0:  # non-negative data from 0 on, and zeros alone with a scale of 1
        ax.set_ylim(0 if ax.get_ylim()[0] < 0 or high == 0 else None, 1 if high == 0 else None)


def levels(ax: Axes, results: Mapping[str, Any]) -> None:
    """Draws the rewards of the references near the data, as dotted lines named at their right end."""
    low, high = ax.get_ylim()
    for name, line in (results.get("references") or {}).items():
        value = line["reward"]["value"]
        if line["drawn"] and low - 0.12 <= value <= high + 0.12:
            ax.set_ylim(min(ax.get_ylim()[0], value - 0.01), max(ax.get_ylim()[1], value + 0.01))  # the line is inside
            ax.axhline(value, color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
            right: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center", "clip_on": False}
            ax.text(1.01, value, f"{short(name)} {value:.2f}", color=SOFT, **right)


def measures(results: Mapping[str, Any]) -> Figure | None:
    """Draws all other measures that are not 0 throughout over training, as small multiples."""
    curves = [curve["measures"] for curve in results["curves"].values() if curve]
    names = [name for name in results["measures"] if any(np.nan_to_num(each[name]["mean"]).any() for each in curves)]
    names = [name for name in names if name not in ("questions", "reward")]
    if not names:
        return None
    figure, axes = panels(len(names), 3, 3.2, 2.5)
    for ax, name in zip(axes, names, strict=True):
        curve(ax, results, name, width=32)
    legend(figure, colours(results["arms"]))
    return figure


def shares(key: str, label: str, titles: str = "") -> Callable[[Mapping[str, Any]], Figure | None]:
    """Returns a function that draws stacked shares over training, one panel per arm.

    Args:
        key: entry of the numbers: arm -> steps and shares.
        titles: entry of the numbers with the layers' titles; "": their names.
    """

    def draw(results: Mapping[str, Any]) -> Figure | None:
        parts = {
            arm: part for arm, part in results[key].items() if part and sum(map(np.nansum, part["shares"].values()))
        }
        if not parts:
            return None
        names = dict.fromkeys(name for part in parts.values() for name in part["shares"])
        layers = dict(zip(names, cycle(LAYER_COLOURS), strict=False))
        figure, axes = panels(len(parts), 3, 3.2, 2.5, sharey=True)
        for ax, (arm, part) in zip(axes, parts.items(), strict=True):
            steps = np.array(part["steps"])
            values = np.nan_to_num([part["shares"].get(name, np.zeros(len(steps))) for name in layers])
            if len(steps) == 1:
                steps, values = steps[0] + np.array([-0.5, 0.5]), np.repeat(values, 2, axis=1)
            ax.stackplot(steps, values, colors=layers.values(), edgecolor="white", linewidth=0.4)
            ax.set(title=short(arm), xlim=(steps[0], steps[-1]), ylim=(0, 1), xlabel="training step")
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0].set_ylabel(label)
        legend(figure, {(results[titles][name] if titles else name): colour for name, colour in layers.items()})
        return figure

    return draw


# -- reward by questions -----------------------------------------------------------------------------------------------


def reward_by_questions(results: Mapping[str, Any]) -> Figure | None:
    """Draws mean reward against the number of information-seeking questions, compared with an ideal and a random asker.

    A point's area is its number of dialogues.
    """
    counts, askers = results["reward_by_questions"], results.get("frontier") or {}
    points = {arm: [p for p in part if p["n"] >= 10 and p["clusters"] >= 2] for arm, part in counts.items()}
    points = {arm: part for arm, part in points.items() if part}
    if not points and not askers and not any(counts.values()):
        return None
    figure, (ax,) = panels(1, 1, 6.4, 3.8)
    lines = []
    for style, (name, each) in zip(cycle(("-", "--", ":", "-.")), askers.items(), strict=False):
        label = {"greedy": "ideal asker", "random": "random asker"}.get(name, short(name))
        lines += ax.plot(range(len(each["mean"])), each["mean"], style, color=INK, linewidth=1.4, label=label)
        ax.fill_between(range(len(each["mean"])), each["low"], each["high"], color=INK, alpha=0.08, linewidth=0)
    largest = max((p["n"] for part in points.values() for p in part), default=1)
    for place, (arm, part) in enumerate(points.items()):
        colour, number, mean = colours(results["arms"])[arm], [p["n"] for p in part], [p["mean"] for p in part]
        x = np.array([p["count"] for p in part]) + 0.09 * (place - (len(points) - 1) / 2)
        ax.plot(x, mean, color=colour, linewidth=1.0, alpha=0.6)
        ax.vlines(x, [p["low"] for p in part], [p["high"] for p in part], color=colour, linewidth=1.3)
        ax.scatter(
            x, mean, s=8 + 110 * np.array(number) / largest, color=colour, edgecolor="white", linewidth=0.6, zorder=3
        )
    top = int(max((p["count"] for part in points.values() for p in part), default=0))
    ax.set_xlim(-0.5, max([top, *(len(each["mean"]) - 1 for each in askers.values())]) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if top >= results["many"]:
        ax.set_xticks(range(top + 1), [*map(str, range(top)), f"{top}+"])
    ax.set(title="Reward by information-seeking questions", xlabel="questions per dialogue", ylabel="mean reward")
    if not askers:
        levels(ax, results)
    legend(figure, {arm: colours(results["arms"])[arm] for arm in points}, lines)
    return figure


PLOTS = {
    "training": Plot(training, _CAPTIONS["training"]),
    "training_by_partner": Plot(training_by_partner, _CAPTIONS["training_by_partner"]),
    "reward_by_questions": Plot(reward_by_questions, _CAPTIONS["reward_by_questions"], wide=False),
    "question_kinds": Plot(shares("kinds", "share of questions", "question_kinds"), _CAPTIONS["question_kinds"]),
    "stop_reasons": Plot(shares("stop_reasons", "share of dialogues"), _CAPTIONS["stop_reasons"]),
    "measures": Plot(measures, _CAPTIONS["measures"]),
}
