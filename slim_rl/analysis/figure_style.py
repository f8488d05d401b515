"""Style of all figures, and their export: the same bytes for the same numbers.

Colours are Okabe and Ito's, chosen for the colour-blind; an arm has one colour in every figure.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter

from slim_rl.formats import words

ARM_COLOURS = {
    "shy": "#0072B2",
    "forthcoming": "#D55E00",
    "mute": "#5B5B5B",
    "shuffled_reward": "#CC79A7",
    "frozen_policy": "#009E73",
}
SPARE_COLOURS = ("#E69F00", "#56B4E9", "#8C6D31", "#882255", "#117733", "#332288")
KIND_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#B8B8B8", "#009E73", "#CC79A7", "#8C6D31", "#882255")
STOP_COLOURS = {
    "agreed": "#009E73",
    "finished": "#66C2A5",
    "rejected": "#B22222",
    "max_turns": "#E69F00",
    "policy_errors": "#D55E00",
    "turn_tokens": "#CC79A7",
    "dialogue_tokens": "#AA4499",
    "context_length": "#882255",
}
INK, SOFT, FAINT = "#222222", "#6B6B6B", "#E4E4E4"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,  # of all text; pages show figures at their natural size
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": "#9A9A9A",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "axes.titlecolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "text.parse_math": False,  # a name may contain a dollar sign
    "svg.fonttype": "path",  # independent of the machine's fonts
    "svg.hashsalt": "slim_rl",  # reproducible ids
}


class Percent(Formatter):
    """Ticks of a share, with as few decimals as all of them allow; none outside 0 to 100%."""

    def set_locs(self, locs: Any) -> None:
        super().set_locs(locs)
        self._decimals = next(
            d for d in range(7) if d == 6 or all(abs(100 * x - round(100 * x, d)) < 1e-6 for x in locs)
        )

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{100 * x:.{self._decimals}f}%" if -1e-9 < x < 1 + 1e-9 else ""


@contextmanager
def style() -> Iterator[None]:
    """Applies the style on top of matplotlib's defaults, ignoring a user's matplotlibrc; draw and save inside it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def to_bytes(figure: Figure, *forms: str) -> list[bytes]:
    """Returns the figure as files of these forms ("png", "svg", "pdf"); the same bytes for the same figure.

    The layout is computed once for all forms.
    """
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    figure.dpi = matplotlib.rcParams["savefig.dpi"]
    return [_print(figure, form) for form in forms]


def _print(figure: Figure, form: str) -> bytes:
    """Returns one file. `Figure.savefig` would draw everything twice, which a figure with a finished layout does not need."""
    file = io.BytesIO()
    if form == "png":
        FigureCanvasAgg(figure).print_png(file)
    elif form == "pdf":
        FigureCanvasPdf(figure).print_pdf(file, metadata={"CreationDate": None})
    else:
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()


def panels(
    number: int, columns: int, width: float, height: float, margin: tuple[float, float] = (0, 0), sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """Returns a figure of `number` panels, each `width` by `height` inches, at most `columns` per row."""
    columns = min(columns, number)
    rows = -(-number // columns)
    figure = Figure(figsize=(width * columns + margin[0], height * rows + margin[1]))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for ax in axes[number:]:
        ax.axis("off")
    return figure, list(axes[:number])


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Returns a colour per arm."""
    spare = cycle(SPARE_COLOURS)
    return {arm: ARM_COLOURS.get(arm) or next(spare) for arm in arms}


def legend(figure: Figure, entries: dict[str, str]) -> None:
    """Adds a legend above the figure: name -> colour."""
    handles = [matplotlib.patches.Patch(color=colour, label=short_words(name)) for name, colour in entries.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(6, len(handles)), handlelength=1)


def short_words(name: str) -> str:
    """Returns a name as words, at most 28 characters."""
    text = words(name)
    return text if len(text) <= 28 else text[:27] + "…"


def draw_levels(ax: Axes, lines: Mapping[str, float]) -> list[tuple[float, str, str]]:
    """Draws levels that lie near the plotted data, as dotted lines. Returns their labels, for `label_ends`."""
    low, high = ax.get_ylim()
    near = {name: value for name, value in lines.items() if low - 0.12 <= value <= high + 0.12}
    for value in near.values():
        ax.axhline(value, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    return [(value, f"{short_words(name)} {value:.2f}", SOFT) for name, value in near.items()]


def label_ends(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Labels each line right of the panel; labels of lines that end close together are moved apart."""
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
