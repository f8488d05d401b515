"""Numbers of an evaluation's cells, from which terminal tables, CSV, JSON and the benchmark's scores are made.

Every interval is over games.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy.special import comb

from slim_rl.analysis.verdict import frame
from slim_rl.dialogue.measures import MEASURES, Measure, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.statistics import Estimate, clustered_mean

Cells = Mapping[str, Sequence[Dialogue]]


@dataclass(frozen=True, slots=True)
class CellNumber:
    """Mean of one measure in one cell; `heading` is its name in tables."""

    cell: str
    measure: Measure
    heading: str
    mean: Estimate

    def as_row(self) -> dict[str, Any]:
        """Returns a flat row for CSV and JSON."""
        mean = self.mean
        numbers = {"value": mean.value, "low": mean.low, "high": mean.high, "dialogues": mean.n, "games": mean.clusters}
        return {"cell": self.cell, "measure": self.measure.name, "title": self.heading, **numbers}


def measured_cells(cells: Cells, measures: Sequence[Measure] | None = None) -> Iterator[CellNumber]:
    """Yields each measure's mean in each cell; by default the measures of a command's table."""
    frames = {name: _by_game(dialogues) for name, dialogues in cells.items()}
    for measure in measures or shown_in("table"):
        for name, data in frames.items():
            yield _number(name, measure, measure.heading, data[measure.name])


def reliability_of_cells(cells: Cells, success: float | None = None) -> Iterator[CellNumber]:
    """Yields each cell's pass^k: the probability that all of k trials of a game succeed (τ-bench, Yao et al. 2024).

    k is 2, 4, 8, ... and the number of trials per game. Yields nothing if each game was played once.

    Args:
        success: reward from which a dialogue is a success; pass^1 is then included. None: an agreed dialogue is a success.
    """
    agreed = MEASURES["agreed"]
    succeeded = {}
    for name, dialogues in cells.items():
        data = _by_game(dialogues)
        passed = data["agreed"] if success is None else data["reward"] >= success
        succeeded[name] = passed.groupby(level=["game_id", "seat"]).agg(["sum", "count"])
    trials = max((int(games["count"].max()) for games in succeeded.values() if len(games)), default=0)
    if trials < 2:
        return
    powers = (2**i for i in range(trials.bit_length()))
    for k in dict.fromkeys((*(k for k in powers if k > 1 or success is not None), trials)):
        for name, games in succeeded.items():
            games = games[games["count"] >= k]
            share = comb(games["sum"].to_numpy(float), k) / comb(games["count"].to_numpy(float), k)
            yield _number(name, agreed, f"pass^{k}", pd.Series(share, games.index))


def _by_game(dialogues: Sequence[Dialogue]) -> pd.DataFrame:
    return frame(dialogues).set_index(["game_id", "seat"])


def _number(cell: str, measure: Measure, heading: str, column: pd.Series) -> CellNumber:
    return CellNumber(
        cell, measure, heading, mean_of(column.astype(float), column.index.get_level_values("game_id"), measure)
    )


def mean_of(values: pd.Series, games: Any, measure: Measure) -> Estimate:
    """Returns the mean of a measure's values, with an interval over games."""
    return clustered_mean(values, games, measure.bounded, measure.signed, measure.ceiling)
