"""Numbers of an experiment's page, computed from its logs and its preregistered contrasts.

Invariants:
    A contrast is computed as preregistered, or reported as not run; none is added or left out.
    Every interval is over seeds and games (`statistics.contrast`), or over seeds if a run has one number.
"""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import files, provenance
from slim_rl import statistics as st
from slim_rl.analysis import held_out as games
from slim_rl.analysis.arms import TRAIN, TREATMENT, order_arms
from slim_rl.analysis.held_out import EMPTY, KEYS, by_game, comparable, completed, difference_of, ends, runs_trained
from slim_rl.analysis.load import load
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import FORMER
from slim_rl.errors import DataError
from slim_rl.formats import words
from slim_rl.lab.askers import Askers, simulated, with_net_reward
from slim_rl.lab.experiment.contrasts import HELD_OUT, Contrast, Contrasts, Manifest, Outcome
from slim_rl.lab.gap import with_gap

HELD_OUT_VALUES = "held_out.parquet"  # file of `Plays.held_out`
NOT_RUN = "not run"
LEVEL = 0.05  # significance level of the (Holm) p values


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
    def read(cls, folder: Path, treatment: str = TREATMENT) -> "Plays":
        """Reads what `write` wrote. Raises DataError if that fails."""
        try:
            held_out = _values(folder / HELD_OUT_VALUES, KEYS)
            training = _values(folder / "training.parquet", ["arm", "run"])
            askers = folder / "askers.parquet"  # missing in older folders
            simulated = _values(askers, ["asker"]) if askers.exists() else EMPTY
            attrs, held_out.attrs = held_out.attrs, {}  # pandas copies them at every operation
            return cls(held_out, training, attrs["warnings"], attrs["provenance"], simulated, treatment)
        except Exception as error:  # pyarrow and pandas raise many kinds for a damaged file
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{folder} does not hold the values of an experiment ({reason}). Name a folder that slim-rl lab page wrote."
            ) from error

    @property
    def arms(self) -> list[str]:
        return order_arms(set(self.training["arm"]) or set(self.held_out["arm"]), self.treatment)

    def table(self, outcome: Outcome, measure: str) -> pd.DataFrame:
        """Returns a measure, runs × games; empty without data. A change is after minus before, per game."""
        if outcome.when == "change":
            return difference_of(
                *(self.table(outcome.model_copy(update={"when": when}), measure) for when in ("before", "after"))
            )
        played = self.held_out.filter([*KEYS, measure])
        return games.table(played, outcome.condition, outcome.arm, outcome.when).get(measure, EMPTY)


def joined(parts: Sequence[Plays]) -> Plays:
    """Returns the results of runs that were made on several machines; of what several have, the first."""
    held_out, training = (
        pd.concat([getattr(part, name) for part in parts]).drop_duplicates(keys, ignore_index=True)
        for name, keys in (("held_out", KEYS), ("training", ["arm", "run", "step"]))
    )
    warnings, entries = (list(chain(*(getattr(part, name) for part in parts))) for name in ("warnings", "provenance"))
    askers = max((part.askers for part in parts), key=len)  # all simulate the same games
    return Plays(held_out, training, warnings, provenance.distinct(entries), askers, parts[0].treatment)


def _values(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Reads a file of `Plays.write`. Raises ValueError if it lacks one of the columns `names`."""
    frame = pd.read_parquet(path).rename(columns=FORMER)
    if missing := sorted({*names} - {*frame.columns}):
        raise ValueError(f"{path.name} has no column {missing[0]}")
    return frame


# -- from logs ----------------------------------------------------------------------------------------------------------


def read(manifest: Manifest) -> Plays:
    """Reads all logs of the manifest. Raises DataError if the training runs have no dialogues."""
    held_out, warnings, entries = [], [], []
    runs: dict[str, tuple[str, str]] = {}  # run -> its arm, and its initial policy
    training, simulated_rewards = pd.DataFrame(), pd.DataFrame()
    askers = Askers(manifest.most_questions)
    for condition in sorted(manifest.sources, key=lambda name: name != HELD_OUT):
        if not (places := _places(manifest.sources[condition].logs)):
            continue
        log = load(places)
        warnings += [text.replace("so only in the stop reasons", "so left out") for text in log.warnings]
        entries += log.provenance
        frame = completed(log.frame)
        if condition != HELD_OUT:  # before prices, which are per arm
            frame = _assigned_to_runs(frame[frame["phase"] != TRAIN], runs)
        frame = with_net_reward(frame, manifest.prices)
        train = frame[frame["phase"] == TRAIN]
        played = with_gap(log, frame[frame["phase"] != TRAIN], manifest.prices, askers)
        if condition == HELD_OUT:
            treated = played[played["arm"] == manifest.treatment]
            simulated_rewards = simulated(log, treated, manifest.prices, askers)
            names = [name for name in comparable() if name in train]
            training = train.groupby(["arm", "run", "step"])[names].mean().reset_index()
            started = played.sort_values("step").groupby("run").first()
            runs = {str(run): (row["arm"], row["policy"]) for run, row in started.iterrows()}
            played = ends(played, runs_trained(frame), ["arm", "run"])
            last = played[played["when"] == "after"].groupby(["arm", "run"])["step"].max()
            early = last[last < last.groupby("arm").transform("max")]
            warnings += [
                f"{run} was evaluated last at step {step:g}, others of its arm later."
                for (_, run), step in early.items()
            ]
        held_out.append(by_game(played.assign(condition=condition)))
    if training.empty and not runs:
        raise DataError(
            f"The source {HELD_OUT} has no logs of training runs in the working folder. Run the experiment first, or correct its logs."
        )
    entries = provenance.distinct(entries)
    games = pd.concat(held_out, ignore_index=True)
    return Plays(games, training, list(dict.fromkeys(warnings)), entries, simulated_rewards, manifest.treatment)


def left_out(plays: Plays, manifest: Manifest) -> list[str]:
    """Returns sentences on missing or failed sources, and on several versions of the code, or uncommitted code."""
    rows = plays.held_out
    warnings = list(plays.warnings)
    if missing := [words(name) for name in manifest.sources if name not in {*rows["condition"], HELD_OUT}]:
        warnings.append(f"No logs yet of {', '.join(missing)}.")
    versions = sorted({provenance.code_of(entry) for entry in plays.provenance})
    if len(versions) > 1:
        warnings.append(f"The logs were written by several versions of the code: {'; '.join(versions)}.")
    elif versions and "not committed" in versions[0]:
        warnings.append(f"The logs were written by {versions[0]}.")
    ended = rows[(rows["condition"] == HELD_OUT) & (rows["when"] == "after")]["run"]
    if unplayed := sorted({*plays.training["run"], *rows["run"]} - {"", *ended}):
        warnings.append(f"Not evaluated after training yet, so only in the curves: {', '.join(unplayed)}.")
    return list(dict.fromkeys(warnings))


def _places(patterns: Sequence[str]) -> list[Path]:
    """Returns the files that match a pattern, and the folders that hold logs."""
    found = [path for each in patterns for path in sorted(Path(Path(each).anchor).glob(each.lstrip("/")))]
    return [path for path in found if path.is_file() or any(path.rglob("*.jsonl"))]


def _assigned_to_runs(played: pd.DataFrame, runs: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Returns evaluations with the run whose model played: <run>/model is "after", a run's initial policy "before"."""
    parts = []
    for policy, rows in played.groupby("policy"):
        model = Path(str(policy))
        run = model.parent.name if model.name == "model" else model.name
        if run in runs:
            parts.append(rows.assign(arm=runs[run][0], run=run, when="after"))
        started = (arm for arm, initial in runs.values() if Path(initial).absolute() == model.absolute())
        for arm in dict.fromkeys(started):  # slime logs whole paths
            parts.append(rows.assign(arm=arm, run="", when="before"))
    return pd.concat(parts, ignore_index=True) if parts else played.iloc[:0].assign(when="")


def seed_of_run(run: str) -> str:
    """Returns '3' for a run that `slim-rl lab run` named matching-shy-s3, else the run's name."""
    return match[1] if (match := re.search(r"-s?(\d+)$", run)) else run


# -- contrasts ---------------------------------------------------------------------------------------------------------


def compare(plays: Plays, manifest: Manifest, contrasts: Contrasts) -> list[dict[str, Any]]:
    """Returns one row per contrast, in the preregistered order.

    Keys:
        name, measure, ...: fields of the contrast; a, b as text.
        value, low, high, over: the difference and its interval.
        p_crossed, p_permutation, p: p of the interval's test, of the permutation test, and the larger of the two.
        least: minimum p with this number of runs.
        p_holm, least_holm: for primary contrasts, p after Holm's correction, and its minimum.
        runs, games, by_run: sample.
        found: result in words.
        note: remark on the result.
    """
    rows = [_compare(plays, contrast) for contrast in contrasts.contrasts]
    family = [row for row in rows if row["role"] == "primary"]
    others, least_others = zip(*contrasts.elsewhere.values(), strict=True) if contrasts.elsewhere else ((), ())
    # contrasts not run count, too
    holm = st.holm([*(1.0 if np.isnan(row["p"]) else row["p"] for row in family), *others])
    least = [1.0 if row["note"] == NOT_RUN else np.nan_to_num(row["least"]) for row in family]
    for row, p, smallest in zip(family, holm, st.holm([*least, *least_others]), strict=False):
        row["p_holm"] = float(p) if np.isfinite(row["p"]) else np.nan
        row["least_holm"] = float(smallest) if np.isfinite(row["least"]) else np.nan
    for row in rows:
        row["found"] = _result(row, as_predicted(manifest))
    return rows


def as_predicted(manifest: Manifest) -> str:
    """Returns the result of a contrast that came out in its direction."""
    return "as predicted" if manifest.preregistered else "shown"


def _compare(plays: Plays, spec: Contrast) -> dict[str, Any]:
    arms, weights = _arms(plays, spec)
    changes = 2.0 if isinstance(spec.b, Outcome) and spec.b.when == "change" else 1.0
    limit = np.inf if spec.doses else changes * comparable()[spec.measure].span
    result = st.contrast(arms, weights, limit)
    means = st.run_means(arms)
    tested = st.permute(means, weights)
    p, least = float(np.maximum(result.p, tested.p)), tested.least
    if spec.margin is not None:
        p, least = (st.equivalence(result, spec.margin) if result.se > 0 else np.nan), np.nan
    note = NOT_RUN if min(map(len, means)) == 0 else result.note
    return {
        **spec.model_dump(include={"name", "measure", "direction", "margin", "role"}),
        "a": str(spec.a) if spec.a else f"slope over {len(spec.doses)} doses",
        "b": f"{spec.b:g}" if isinstance(spec.b, float) else str(spec.b or "zero"),
        "value": result.value,
        "low": result.low,
        "high": result.high,
        "over": result.over,
        "p_crossed": result.p,
        "p_permutation": np.nan if spec.margin is not None else tested.p,
        "p": p,
        "least": least,
        "exact": tested.exact,
        "runs": [len(arm) for arm in means],
        "games": result.clusters,
        "by_run": [arm.tolist() for arm in means],
        "note": note,
    }


def _arms(plays: Plays, spec: Contrast) -> tuple[list[pd.DataFrame], list[float]]:
    tables = [plays.table(outcome, spec.measure) for outcome in spec.outcomes]
    if spec.doses:
        doses = np.array([dose for dose, _ in spec.doses])
        centred = doses - doses.mean()
        weights = (centred / (centred**2).sum()).tolist()
    elif isinstance(spec.b, Outcome):
        weights = [1.0, -1.0]
    else:
        return [tables[0] - (spec.b or 0.0)], [1.0]
    if len({outcome.arm for outcome in spec.outcomes}) > 1:
        return tables, weights
    return [_within_runs(tables, weights)], [1.0]


def _within_runs(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> pd.DataFrame:
    """Returns the weighted sum over conditions per run, and per game if the conditions have the same games."""
    runs = next((table.index for table in tables if list(table.index) != [""]), tables[0].index)
    # all runs share one initial policy
    tables = [each.loc[[""] * len(runs)].set_axis(runs) if list(each.index) == [""] else each for each in tables]
    paired = _weighed(tables, weights)
    if min(map(len, tables)) == 0 or paired.notna().to_numpy().any():
        return paired.dropna(how="all", axis=1)
    return _weighed([each.mean(axis=1).to_frame("games") for each in tables], weights)


def _weighed(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> pd.DataFrame:
    return reduce(operator.add, (weight * table for weight, table in zip(weights, tables, strict=True)))


def _result(row: dict[str, Any], as_predicted: str) -> str:
    """Returns the result of a contrast in words; `as_predicted` if it came out in the predicted direction."""
    p = row.get("p_holm", row["p"])
    if np.isnan(row["value"]):
        return NOT_RUN
    if np.isnan(p):
        return "cannot be told"  # as in published tables
    if p >= LEVEL:
        return "not shown"
    if row["direction"] == "any":
        return "they differ"
    return as_predicted if row["direction"] in ("same", "more" if row["value"] > 0 else "less") else "the opposite"


def by_seed(plays: Plays, measures: Sequence[str]) -> pd.DataFrame:
    """Returns one row per run: condition, arm, run, seed, when, games, and the mean of every measure."""
    frame = plays.held_out
    names = [name for name in dict.fromkeys((*measures, *(each.name for each in shown_in("report")))) if name in frame]
    grouped = frame.groupby(KEYS[:-1])
    table = grouped[names].mean().assign(games=grouped.size()).reset_index()
    table.insert(3, "seed", [seed_of_run(run) for run in table["run"]])
    return table
