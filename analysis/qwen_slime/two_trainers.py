"""Draws what two trainers made of one initial Qwen: questions and reward over training, by TRL with adapters and by slime with all weights.

    python analysis/qwen_slime/two_trainers.py

Reads the committed values of three experiments, of arm shy, and writes two_trainers.png beside those of slime.
"""

from pathlib import Path

import pandas as pd

from slim_rl.analysis.figures import colours, curve, legend, panels, style, to_bytes
from slim_rl.files import write_atomically
from slim_rl.lab.experiment.figures import training_curves
from slim_rl.lab.experiment.results import Plays

RESULTS = Path(__file__).resolve().parents[1] / "results"
TRAINERS = {
    "slime": RESULTS / "qwen_slime",
    "slime, groups that end first": RESULTS / "qwen_slime" / "ends_first",
    "TRL, adapters": RESULTS / "qwen" / "arms",
}
MEASURES = ("questions", "reward")


def draw(folders: dict[str, Path]) -> bytes:
    """Returns the figure as PNG: one line per trainer, thin ones per seed."""
    trained = [Plays.read(folder).training.query("arm == 'shy'").assign(arm=name) for name, folder in folders.items()]
    plays = Plays(pd.DataFrame(), pd.concat(trained))
    with style():
        figure, axes = panels(len(MEASURES), len(MEASURES), 4.4, 3.5)
        for ax, measure in zip(axes, MEASURES, strict=True):
            curve(ax, training_curves(plays, set(folders), measure), measure)
        legend(figure, colours(plays.arms))
        return to_bytes(figure, "png")


if __name__ == "__main__":
    write_atomically(RESULTS / "qwen_slime" / "two_trainers.png", draw(TRAINERS))
