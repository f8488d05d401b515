"""What runs did, before and after training: the numbers that every page and every comparison starts from.

The invariant: what is compared is one number a run and held-out game. A condition is what held-out games were played under: a
partner, or a source of an experiment. Dialogues that failed are in none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from slim_rl import files
from slim_rl import statistics as st
from slim_rl.analysis.arms import TRAIN, TREATMENT, order_arms
from slim_rl.analysis.verdict import sentences
from slim_rl.config import Section
from slim_rl.dialogue.measures import RENAMED, Measure, shown_in
from slim_rl.errors import DataError
from slim_rl.formats import words

HELD_OUT = "held_out"  # the condition of what runs themselves play: their own partner, free
COMPARED: dict[
    str, Measure
] = {}  # what does not follow from a dialogue alone; whoever computes such a measure adds it here
KEYS = ["condition", "arm", "run", "when", "game"]
EMPTY = pd.DataFrame()
COUNTS = ["condition", "run", "dialogues", "failed"]


def comparable() -> dict[str, Measure]:
    """Returns what runs can be compared by, by name."""
    return {measure.name: measure for measure in shown_in("report")} | COMPARED


class Outcome(Section):
    """What is compared: the runs of an arm, on games played in a condition, before or after training or the change between."""

    arm: str
    when: Literal["before", "after", "change"] = "after"
    condition: str = HELD_OUT
    times: float = Field(1.0, gt=0, description="its values are multiplied by this: 0.25 for a quarter of them")

    def __str__(self) -> str:
        parts: list[str] = [self.when] if self.when != "after" else []
        parts += [words(self.condition)] if self.condition != HELD_OUT else []
        times = f"{self.times:g} × " if self.times != 1 else ""
        return times + words(self.arm) + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True)
class Plays:
    """What runs did.

    Attributes:
        held_out: one row a condition, arm, run, when (before, after) and game, and the measures; run is "" for a start that was
            evaluated for all runs of the arm.
        training: one row an arm, run and step: means of the measures.
        counts: one row a condition and run: dialogues, and failed, how many more failed.
        provenance: what wrote the logs.
        warnings: what could not be read of the logs, and why.
        askers: what askers on paper earn in the treatment's games (`askers.on_paper`); empty where that was not worked out.
        treatment: the arm that comes first.
    """

    held_out: pd.DataFrame
    training: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["arm", "run", "step"]))
    counts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COUNTS))
    warnings: list[str] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)
    askers: pd.DataFrame = field(default_factory=pd.DataFrame)
    treatment: str = TREATMENT

    def write(self, folder: Path) -> None:
        """Writes all of it to the folder, as held_out.parquet, training.parquet and askers.parquet, for `read`."""
        told = self.held_out.copy()
        told.attrs = {
            "warnings": self.warnings,
            "provenance": self.provenance,
            "counts": self.counts.to_dict("records"),
        }
        for name, frame in (("held_out", told), ("training", self.training), ("askers", self.askers)):
            if len(frame.columns):
                files.write_atomically(folder / f"{name}.parquet", frame.to_parquet(index=False, compression="zstd"))

    @classmethod
    def read(cls, folder: Path) -> Plays:
        """What `write` wrote. Raises DataError if it cannot be read."""
        try:
            held_out = _values(folder / "held_out.parquet", KEYS)
            askers = folder / "askers.parquet"  # of which older folders have none
            about = _Attributes.model_validate(held_out.attrs).model_dump()
            counts: Any = about["counts"]
            if isinstance(counts, dict):  # an older folder: condition -> dialogues
                counts = [dict(zip(COUNTS, (condition, "", n, 0), strict=True)) for condition, n in counts.items() if n]
            return cls(
                held_out,
                _values(folder / "training.parquet", ["arm", "run"]),
                pd.DataFrame(counts, columns=COUNTS),
                about["warnings"],
                about["provenance"],
                _values(askers, ["asker"]) if askers.exists() else EMPTY,
            )
        except Exception as error:  # whatever pyarrow and pandas make of a damaged file
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{folder} does not hold the values of an experiment ({reason}); name a folder that slim-rl lab page wrote."
            ) from error

    @property
    def ended(self) -> set[str]:
        """The runs that have played after training."""
        own = self.held_out[(self.held_out["condition"] == HELD_OUT) & (self.held_out["when"] == "after")]
        return set(own["run"])

    @property
    def runs(self) -> set[str]:
        """All runs, those that are still training too."""
        return set(self.training["run"]) | set(self.held_out["run"]) - {""}

    @property
    def arms(self) -> list[str]:
        return order_arms(set(self.training["arm"]) or set(self.held_out["arm"]), self.treatment)

    def table(self, outcome: Outcome, measure: str) -> pd.DataFrame:
        """Runs by games; empty without data. A change is after less before, game by game."""
        if outcome.when == "change":
            return _moved(
                *(self.table(outcome.model_copy(update={"when": when}), measure) for when in ("before", "after"))
            )
        frame = self.held_out
        rows = frame[
            (frame["condition"] == outcome.condition) & (frame["arm"] == outcome.arm) & (frame["when"] == outcome.when)
        ]
        return rows.pivot(index="run", columns="game", values=measure) if measure in rows else EMPTY

    def correlations(self, outcome: Outcome, measure: str, other: str) -> pd.DataFrame:
        """One column: how two measures correlate over the games of each run; 0 where either is the same in all of them."""
        if outcome.when == "change":
            sides = (outcome.model_copy(update={"when": when}) for when in ("before", "after"))
            return _moved(*(self.correlations(side, measure, other) for side in sides))
        one, two = self.table(outcome, measure), self.table(outcome, other)
        if one.empty or two.empty:
            return EMPTY
        with np.errstate(invalid="ignore", divide="ignore"):
            found = one.corrwith(two, axis=1).fillna(0.0)
        return found.where((one.notna() & two.notna()).any(axis=1)).to_frame("correlation")

    def first_steps(self, arm: str, measure: str, level: float, window: int) -> pd.DataFrame:
        """One column: the first training step of each run at which the mean of `window` steps reaches `level`; one more than the
        last step of all runs where it never does."""
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
    """What `Plays.write` keeps beside the values."""

    warnings: list[str]
    provenance: list[dict[str, Any]]
    counts: list[_Counted] | dict[str, int]


def _values(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Reads a file of `Plays.write`: `names` are texts, all else numbers. Raises ValueError if they are not."""
    frame = pd.read_parquet(path).rename(columns=RENAMED)
    for name in dict.fromkeys((*names, *frame.columns)):
        kind = pd.api.types.infer_dtype(frame[name], skipna=name not in names)
        if len(frame) and (kind != "string" if name in names else not pd.api.types.is_numeric_dtype(frame[name])):
            raise ValueError(f"{path.name}: the column {name} holds values of type {kind}")
    return frame


def _moved(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """`Plays.table` of a change."""
    if list(before.index) == [""]:  # all runs have one start
        return after - before.reindex(columns=after.columns).loc[""] if len(after) else after
    return after - before


def of_frame(frame: pd.DataFrame) -> Plays:
    """The held-out games of a frame as `load` makes it; a condition is a partner."""
    played = plain(frame[frame["phase"] != TRAIN])
    played = played.assign(condition=played["partner"].astype(str))
    played = ends(played, runs_trained(frame), ["condition", "arm", "run"])
    return Plays(by_game(played))


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The dialogues that did not fail, with names as text."""
    return frame[~frame["failed"]].astype(dict.fromkeys(("arm", "run", "policy", "cluster"), str))


def runs_trained(frame: pd.DataFrame) -> set[str]:
    """The names of the runs of which a frame has training dialogues."""
    return set(frame.loc[frame["phase"] == TRAIN, "run"].astype(str))


def by_game(played: pd.DataFrame) -> pd.DataFrame:
    """`Plays.held_out` of dialogues that have a condition and a when."""
    names = [name for name in comparable() if name in played]
    return played.assign(game=played["cluster"]).groupby(KEYS)[names].mean().reset_index()


def ends(played: pd.DataFrame, trained: Collection[str], runs: Sequence[str] = ("run",)) -> pd.DataFrame:
    """The start and the last checkpoint of each run, as before and after; what was played in between is neither. What has one checkpoint is
    after, but for a run of `trained` that has not played since before its first step.
    """
    played = played.assign(step=played["step"].fillna(-1.0))  # a log of `evaluate` has no step
    first, last = (played.groupby(list(runs))["step"].transform(end) for end in ("min", "max"))
    begun = played["run"].isin(trained) & (last == 0)
    played = played.assign(when=np.where((played["step"] == last) & ~begun, "after", "before"))
    return played[(played["step"] == last) | ((played["step"] == first) & (first <= 0))]


# -- before and after --------------------------------------------------------------------------------------------------


def by_arm(plays: Plays, measures: Sequence[str], first: str = "") -> list[dict[str, Any]]:
    """One row a condition, arm and measure: before, after and their change, each with its interval; the condition `first` before
    the others.
    """
    after = plays.held_out[plays.held_out["when"] == "after"]
    seen = dict.fromkeys(zip(after["condition"], after["arm"], strict=True))
    arms = order_arms({arm for _, arm in seen}, plays.treatment)
    return [
        {"condition": condition, "arm": arm, "measure": measure, **change(plays, arm, measure, condition)}
        for condition, arm in sorted(seen, key=lambda pair: (pair[0] != first, arms.index(pair[1]), pair[0]))
        for measure in measures
    ]


def change(plays: Plays, arm: str, measure: str, condition: str) -> dict[str, Any]:
    """Before, after and their change, each with its interval; `verdict.sentences` reads it.

    Keys: before, after, each with _low and _high; value, low, high, p and `over` what they are: seeds and games, or games alone
    where there is one run; clusters, the games of the change; runs and games; by_run, the change in each; next_low, next_high, what one more run is
    expected to show.
    """
    about = comparable()[measure]
    bounded = about.bounded
    tables = {
        when: plays.table(Outcome(arm=arm, when=when, condition=condition), measure)  # type: ignore[arg-type]
        for when in ("before", "after")
    }
    moved = _moved(**tables).dropna(how="all")
    games, by_run = moved.mean().dropna(), moved.mean(axis=1)
    if len(by_run):  # a run that was played on one side alone is compared with none
        tables = {when: table.loc[table.index.intersection(["", *moved.index])] for when, table in tables.items()}
    out: dict[str, Any] = {}
    sides = []
    for when, table in tables.items():
        sides.append(table[games.index] if len(by_run) == 1 else table)  # of one run what is compared, game by game
        mean = st.arm_mean(sides[-1], bounded, about.signed, about.ceiling)
        out |= {when: mean.value, f"{when}_low": mean.low, f"{when}_high": mean.high, "over": mean.over}
        out |= {"runs": int(table.notna().any(axis=1).sum()), "games": mean.clusters}
    found = st.contrast([moved], [1.0], limit=1.0 if bounded else np.inf)
    if len(by_run) == 1:
        before, after = (side.mean() for side in sides)
        found = st.paired_comparison(before, after, bounded=bounded).difference
    ahead = st.next_run(by_run.to_numpy(float))
    return {
        **out,
        **{name: getattr(found, name) for name in ("value", "low", "high", "p", "clusters")},
        "over": found.over if len(by_run) else out["over"],
        "by_run": by_run.tolist(),
        **dict(zip(("next_low", "next_high"), ahead, strict=True)),
    }


def verdicts(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Whether each arm learned to ask, and whether that helped, in sentences; one row an arm and condition of `by_arm`'s rows in which
    it was played before and after.
    """
    found = {(row["arm"], row["condition"], row["measure"]): row for row in rows}
    for (arm, condition, measure), reward in found.items():
        if measure == "reward" and reward["by_run"] and (arm, condition, "questions") in found:
            said = sentences(found[arm, condition, "questions"], reward)
            yield {"arm": arm, "condition": condition, "sentences": said}
