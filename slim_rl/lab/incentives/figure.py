"""Figure of `slim-rl lab incentives`: reward against the number of questions, and the best reward without any."""

from __future__ import annotations

from matplotlib.figure import Figure

from slim_rl.analysis.figure_style import INK, SOFT, SPARE_COLOURS, style, to_bytes
from slim_rl.lab.incentives.results import JUDGED, Incentives


def draw(incentives: Incentives, name: str) -> bytes:
    """Returns a PNG with one line per curve, with 95% intervals over games."""
    with style():
        figure = Figure(figsize=(5.2, 3.4))
        axes = figure.subplots()
        solo = incentives.lines[0]
        names = list(dict.fromkeys(line.curve for line in incentives.lines if line.curve and line.questions))
        colours = (INK, *SPARE_COLOURS)
        for curve, colour in zip(sorted(names, key=lambda each: each != JUDGED), colours, strict=False):
            lines = [solo, *(line for line in incentives.lines[1:] if line.curve == curve)]
            k, mean = [line.questions for line in lines], [line.reward.value for line in lines]
            error = [
                [line.reward.value - line.reward.low for line in lines],
                [line.reward.high - line.reward.value for line in lines],
            ]
            label = f"{curve} questions"
            axes.errorbar(k, mean, error, color=colour, marker="o", markersize=3, linewidth=1.2, capsize=2, label=label)
        best = incentives.best_without
        axes.axhline(best.reward.value, color=SOFT, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"best without questions: {best.name}",
            (0.99, best.reward.value),
            xycoords=("axes fraction", "data"),
            xytext=(0, -9),
            textcoords="offset points",
            ha="right",
            color=SOFT,
            fontsize=7,
        )
        axes.set_xlabel("questions before the plan")
        axes.set_ylabel("reward")
        axes.set_title(f"Reward by questions, {name}")
        axes.legend(loc="upper left")
        return to_bytes(figure, "png")[0]
