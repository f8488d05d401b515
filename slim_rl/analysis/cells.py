"""The numbers of an evaluation's cells, each once: the terminal's tables, CSV, JSON and the benchmark's scores are made of these.

Every interval is over games.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from slim_rl.analysis.askers import Askers
from slim_rl.analysis.ledger import LOSSES, of_dialogues
from slim_rl.analysis.net_reward import NET_REWARD
from slim_rl.analysis.verdict import frame
from slim_rl.dialogue.measures import MEASURES, Measure, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.statistics import Estimate, clustered_mean

Cells = Mapping[str, Sequence[Dialogue]]


@dataclass(frozen=True, slots=True)
class CellNumber:
    """The mean of one measure in one cell; `heading`: as a table calls it."""

    cell: str
    measure: Measure
    heading: str
    mean: Estimate

    def as_row(self) -> dict[str, Any]:
        """Flat, for CSV and JSON."""
        mean = self.mean
        numbers = {"value": mean.value, "low": mean.low, "high": mean.high, "dialogues": mean.n, "games": mean.clusters}
        return {"cell": self.cell, "measure": self.measure.name, "title": self.heading, **numbers}


def measured_cells(cells: Cells, measures: Sequence[Measure] | None = None) -> Iterator[CellNumber]:
    """The measures of each cell, measure by measure; those of a command's table by default. Where games were played several times: also
    the share agreed on every time (pass^k of τ-bench, Yao et al. 2024).
    """
    frames = {name: frame(dialogues).set_index(["game_id", "seat"]) for name, dialogues in cells.items()}
    shown = [
        (measure, measure.heading, {name: data[measure.name] for name, data in frames.items()})
        for measure in measures or shown_in("table")
    ]
    if measures is None and any(data.index.has_duplicates for data in frames.values()):
        every = {name: data["agreed"].groupby(level=["game_id", "seat"]).min() for name, data in frames.items()}
        shown.append((MEASURES["agreed"], "agreed every time", every))
    for measure, heading, columns in shown:
        for name, column in columns.items():
            games = column.index.get_level_values("game_id")
            yield CellNumber(name, measure, heading, _mean(column.astype(float), games, measure))


def ledger_of_cells(
    cells: Cells, price: float | tuple[float, ...], askers: Askers | None = None
) -> Iterator[CellNumber]:
    """Each cell's reward net of the price and, where the game has an ideal asker, its ledger of asking, cell by cell. `price`: of a question,
    where a dialogue does not say its own. `askers`: the games that were solved already.
    """
    usual = 0.0 if isinstance(price, tuple) else price
    askers = Askers() if askers is None else askers
    for name, dialogues in cells.items():
        played = [dialogue for dialogue in dialogues if not dialogue.failed]
        data = frame(played)
        prices = [usual if dialogue.price is None else dialogue.price for dialogue in played]
        net = data["reward"].astype(float) - prices * data["questions"].astype(float)
        yield CellNumber(name, NET_REWARD, NET_REWARD.title, _mean(net, data["game_id"], NET_REWARD))
        for loss, values in of_dialogues(played, data, usual, askers).items():
            yield CellNumber(name, LOSSES[loss], LOSSES[loss].heading, clustered_mean(values, data["game_id"]))


def _mean(values: pd.Series, games: Any, measure: Measure) -> Estimate:
    return clustered_mean(values, games, measure.bounded, measure.signed)
