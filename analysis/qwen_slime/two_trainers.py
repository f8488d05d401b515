"""Draws what two trainers made of one initial Qwen: questions and reward over training, by TRL with adapters and by slime with all weights.

    python analysis/qwen_slime/two_trainers.py

Reads the committed values of both experiments, of arm shy, and writes two_trainers.png beside those of slime.
"""

from pathlib import Path

from slim_rl.analysis.figures import colours, curve, legend, panels, style, to_bytes
from slim_rl.analysis.held_out import comparable
from slim_rl.files import write_atomically
from slim_rl.lab.experiment.results import Plays

RESULTS = Path(__file__).resolve().parents[1] / "results"
TRAINERS = {"slime, all weights": RESULTS / "qwen_slime", "TRL, adapters": RESULTS / "qwen" / "arms"}
MEASURES = ("questions", "reward")


def draw(folders: dict[str, Path]) -> bytes:
    """Returns the figure as PNG; one line per trainer, thin ones per seed."""
    curves = {}
    for trainer, folder in folders.items():
        rows = Plays.read(folder).training.query("arm == 'shy'")
        tables = {name: rows.pivot(index="step", columns="run", values=name) for name in MEASURES}
        measures = {
            name: {"mean": table.mean(axis=1), "runs": {run: table[run].tolist() for run in table}}
            for name, table in tables.items()
        }
        curves[trainer] = {"steps": tables["reward"].index.tolist(), "measures": measures}
    about = {name: comparable()[name].about for name in MEASURES}
    with style():
        figure, axes = panels(len(MEASURES), len(MEASURES), 4.4, 3.5)
        for ax, name in zip(axes, MEASURES, strict=True):
            curve(ax, {"arms": list(folders), "curves": curves, "measures": about}, name)
        legend(figure, colours(list(folders)))
        return to_bytes(figure, "png")


if __name__ == "__main__":
    write_atomically(RESULTS / "qwen_slime" / "two_trainers.png", draw(TRAINERS))
