"""Values of an experiment: held-out games of all conditions, and training curves, as a page keeps them.

A condition is what held-out games were played under: the runs' own evaluations (`HELD_OUT`), or another source of the experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel

from slim_rl import files
from slim_rl.analysis import held_out as games
from slim_rl.analysis.arms import TREATMENT, order_arms
from slim_rl.analysis.held_out import EMPTY, KEYS, difference_of
from slim_rl.config import Section
from slim_rl.dialogue.record import FORMER
from slim_rl.errors import DataError
from slim_rl.formats import words

HELD_OUT = "held_out"  # condition of the runs' own evaluations: their partner, free play
HELD_OUT_VALUES = "held_out.parquet"  # file of `Plays.held_out`


class Outcome(Section):
    """Side of a comparison: an arm's runs on the games of a condition, before or after training, or the change."""

    arm: str
    when: Literal["before", "after", "change"] = "after"
    condition: str = HELD_OUT

    def __str__(self) -> str:
        parts: list[str] = [self.when] if self.when != "after" else []
        parts += [words(self.condition)] if self.condition != HELD_OUT else []
        return words(self.arm) + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True)
class Plays:
    """Results of runs.

    Attributes:
        held_out: one row per condition, arm, run, when (before, after) and game, with the measures; run is "" for an initial
            policy that was evaluated for all runs of the arm.
        training: one row per arm, run and step: means of the measures.
        provenance: commands that wrote the logs.
        warnings: sentences on lines or runs that were ignored.
        askers: net reward of simulated askers in the treatment's games (`askers.simulated`); empty if not computed.
        treatment: name of the arm that comes first.
    """

    held_out: pd.DataFrame
    training: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["arm", "run", "step"]))
    warnings: list[str] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)
    askers: pd.DataFrame = field(default_factory=pd.DataFrame)
    treatment: str = TREATMENT

    def write(self, folder: Path) -> None:
        """Writes held_out.parquet, training.parquet and askers.parquet to the folder, for `read`."""
        held_out = self.held_out.copy()
        held_out.attrs = {"warnings": self.warnings, "provenance": self.provenance}
        tables = {HELD_OUT_VALUES: held_out, "training.parquet": self.training, "askers.parquet": self.askers}
        for name, frame in tables.items():
            if len(frame.columns):
                files.write_atomically(folder / name, frame.to_parquet(index=False, compression="zstd"))

    @classmethod
    def read(cls, folder: Path) -> Plays:
        """Reads what `write` wrote. Raises DataError if that fails."""
        try:
            held_out = _values(folder / HELD_OUT_VALUES, KEYS)
            askers = folder / "askers.parquet"  # missing in older folders
            about = _Attributes.model_validate(held_out.attrs).model_dump()
            return cls(
                held_out,
                _values(folder / "training.parquet", ["arm", "run"]),
                about["warnings"],
                about["provenance"],
                _values(askers, ["asker"]) if askers.exists() else EMPTY,
            )
        except Exception as error:  # pyarrow and pandas raise many kinds for a damaged file
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{folder} does not hold the values of an experiment ({reason}). Name a folder that slim-rl lab page wrote."
            ) from error

    @property
    def ended(self) -> set[str]:
        """Runs with held-out games after training."""
        rows = self.held_out[(self.held_out["condition"] == HELD_OUT) & (self.held_out["when"] == "after")]
        return set(rows["run"])

    @property
    def runs(self) -> set[str]:
        """Runs, including those still training."""
        return set(self.training["run"]) | set(self.held_out["run"]) - {""}

    @property
    def arms(self) -> list[str]:
        return order_arms(set(self.training["arm"]) or set(self.held_out["arm"]), self.treatment)

    def table(self, outcome: Outcome, measure: str) -> pd.DataFrame:
        """Returns a measure, runs × games; empty without data. A change is after minus before, per game."""
        if outcome.when == "change":
            return difference_of(
                *(self.table(outcome.model_copy(update={"when": when}), measure) for when in ("before", "after"))
            )
        return games.table(self.held_out, measure, outcome.condition, outcome.arm, outcome.when)


class _Attributes(BaseModel):
    """Metadata that `Plays.write` stores with the values."""

    warnings: list[str]
    provenance: list[dict[str, Any]]


def _values(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Reads a file of `Plays.write`. Raises ValueError unless the columns `names` are text and all others numbers."""
    frame = pd.read_parquet(path).rename(columns=FORMER)
    for name in dict.fromkeys((*names, *frame.columns)):
        kind = pd.api.types.infer_dtype(frame[name], skipna=name not in names)
        if len(frame) and (kind != "string" if name in names else not pd.api.types.is_numeric_dtype(frame[name])):
            raise ValueError(f"{path.name}: the column {name} holds values of type {kind}")
    return frame
