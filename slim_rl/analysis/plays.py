"""Held-out results of runs before and after training, from which pages and comparisons are computed.

A condition is what held-out games were played under: a partner, or a source of an experiment.

Invariants:
    The unit of comparison is one number per run and held-out game.
    Failed dialogues are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from slim_rl import files
from slim_rl.analysis.arms import TRAIN, TREATMENT, order_arms
from slim_rl.config import Section
from slim_rl.dialogue.measures import RENAMED, Measure, shown_in
from slim_rl.errors import DataError
from slim_rl.formats import words

HELD_OUT = "held_out"  # condition of the runs' own evaluations: their partner, free play
HELD_OUT_VALUES = "held_out.parquet"  # file of `Plays.held_out`
COMPARED: dict[str, Measure] = {}  # further measures, registered by the modules that compute them
KEYS = ["condition", "arm", "run", "when", "game"]
EMPTY = pd.DataFrame()
COUNTS = ["condition", "run", "dialogues", "failed"]


def comparable() -> dict[str, Measure]:
    """Returns the measures that runs can be compared by, by name."""
    return {measure.name: measure for measure in shown_in("report")} | COMPARED


class Outcome(Section):
    """Side of a comparison: an arm's runs on the games of a condition, before or after training, or the change."""

    arm: str
    when: Literal["before", "after", "change"] = "after"
    condition: str = HELD_OUT
    times: float = Field(1.0, gt=0, description="factor of its values, such as 0.25 for a quarter")

    def __str__(self) -> str:
        parts: list[str] = [self.when] if self.when != "after" else []
        parts += [words(self.condition)] if self.condition != HELD_OUT else []
        times = f"{self.times:g} × " if self.times != 1 else ""
        return times + words(self.arm) + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True)
class Plays:
    """Results of runs.

    Attributes:
        held_out: one row per condition, arm, run, when (before, after) and game, with the measures; run is "" for an initial
            policy that was evaluated for all runs of the arm.
        training: one row per arm, run and step: means of the measures.
        counts: one row per condition and run: dialogues used, and failed ones.
        provenance: commands that wrote the logs.
        warnings: sentences on lines or runs that were ignored.
        askers: net reward of simulated askers in the treatment's games (`askers.simulated`); empty if not computed.
        treatment: name of the arm that comes first.
    """

    held_out: pd.DataFrame
    training: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["arm", "run", "step"]))
    counts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COUNTS))
    warnings: list[str] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)
    askers: pd.DataFrame = field(default_factory=pd.DataFrame)
    treatment: str = TREATMENT

    def write(self, folder: Path) -> None:
        """Writes held_out.parquet, training.parquet and askers.parquet to the folder, for `read`."""
        held_out = self.held_out.copy()
        held_out.attrs = {
            "warnings": self.warnings,
            "provenance": self.provenance,
            "counts": self.counts.to_dict("records"),
        }
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
            counts: Any = about["counts"]
            if isinstance(counts, dict):  # older folders: condition -> dialogues
                counts = [dict(zip(COUNTS, (condition, "", n, 0), strict=True)) for condition, n in counts.items() if n]
            return cls(
                held_out,
                _values(folder / "training.parquet", ["arm", "run"]),
                pd.DataFrame(counts, columns=COUNTS),
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
        frame = self.held_out
        rows = frame[
            (frame["condition"] == outcome.condition) & (frame["arm"] == outcome.arm) & (frame["when"] == outcome.when)
        ]
        return rows.pivot(index="run", columns="game", values=measure) if measure in rows else EMPTY

    def correlations(self, outcome: Outcome, measure: str, other: str) -> pd.DataFrame:
        """Returns the correlation of two measures over the games of each run; 0 if either is constant. One column."""
        if outcome.when == "change":
            sides = (outcome.model_copy(update={"when": when}) for when in ("before", "after"))
            return difference_of(*(self.correlations(side, measure, other) for side in sides))
        one, two = self.table(outcome, measure), self.table(outcome, other)
        if one.empty or two.empty:
            return EMPTY
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = one.corrwith(two, axis=1).fillna(0.0)
        return correlation.where((one.notna() & two.notna()).any(axis=1)).to_frame("correlation")

    def first_steps(self, arm: str, measure: str, level: float, window: int) -> pd.DataFrame:
        """Returns the first training step of each run at which the mean of `window` steps reaches `level`.

        One column; a run that never reaches it has one more than the last step of all runs.
        """
        steps, never = {}, float(self.training["step"].max() + 1)
        for run, rows in self.training[self.training["arm"] == arm].groupby("run"):
            smooth = rows.set_index("step")[measure].sort_index().rolling(window, min_periods=1).mean()
            steps[run] = float((smooth >= level).idxmax()) if (smooth >= level).any() else never
        return pd.DataFrame({"step": pd.Series(steps, dtype=float)})


class _Counted(BaseModel):
    condition: str
    run: str
    dialogues: int
    failed: int


class _Attributes(BaseModel):
    """Metadata that `Plays.write` stores with the values."""

    warnings: list[str]
    provenance: list[dict[str, Any]]
    counts: list[_Counted] | dict[str, int]


def _values(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Reads a file of `Plays.write`. Raises ValueError unless the columns `names` are text and all others numbers."""
    frame = pd.read_parquet(path).rename(columns=RENAMED)
    for name in dict.fromkeys((*names, *frame.columns)):
        kind = pd.api.types.infer_dtype(frame[name], skipna=name not in names)
        if len(frame) and (kind != "string" if name in names else not pd.api.types.is_numeric_dtype(frame[name])):
            raise ValueError(f"{path.name}: the column {name} holds values of type {kind}")
    return frame


def difference_of(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Returns after minus before, per run and game."""
    if list(before.index) == [""]:  # all runs share one initial policy
        return after - before.reindex(columns=after.columns).loc[""] if len(after) else after
    return after - before


def of_frame(frame: pd.DataFrame) -> Plays:
    """Returns the held-out games of a frame of `load`; each partner is a condition."""
    played = completed(frame[frame["phase"] != TRAIN])
    played = played.assign(condition=played["partner"].astype(str))
    played = ends(played, runs_trained(frame), ["condition", "arm", "run"])
    return Plays(by_game(played))


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the dialogues that did not fail, with names as text."""
    return frame[~frame["failed"]].astype(dict.fromkeys(("arm", "run", "policy", "cluster"), str))


def runs_trained(frame: pd.DataFrame) -> set[str]:
    """Returns the names of the runs with training dialogues."""
    return set(frame.loc[frame["phase"] == TRAIN, "run"].astype(str))


def by_game(played: pd.DataFrame) -> pd.DataFrame:
    """Returns `Plays.held_out` from dialogues with the columns condition and when."""
    names = [name for name in comparable() if name in played]
    return played.assign(game=played["cluster"]).groupby(KEYS)[names].mean().reset_index()


def ends(played: pd.DataFrame, trained: Collection[str], runs: Sequence[str] = ("run",)) -> pd.DataFrame:
    """Returns the dialogues of each run's initial policy ("before") and last checkpoint ("after"); others are dropped.

    A single checkpoint counts as "after", except step 0 of a run in `trained`, which counts as "before".
    """
    played = played.assign(step=played["step"].fillna(-1.0))  # a log of `evaluate` has no step
    first, last = (played.groupby(list(runs))["step"].transform(end) for end in ("min", "max"))
    untrained = played["run"].isin(trained) & (last == 0)
    played = played.assign(when=np.where((played["step"] == last) & ~untrained, "after", "before"))
    return played[(played["step"] == last) | ((played["step"] == first) & (first <= 0))]
