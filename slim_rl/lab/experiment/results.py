"""From an experiment's logs and its contrasts, written down beforehand, to the numbers of its page.

The invariant: a contrast is computed as it was written down, or is shown as not run; none is added and none is left out. Every
interval is over seeds and games (`statistics.contrast`), or over seeds where a run has one number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import provenance
from slim_rl import statistics as st
from slim_rl.analysis.arms import TRAIN, UNIT, Names, pooled, units_of
from slim_rl.analysis.load import load
from slim_rl.analysis.plays import (
    COUNTS,
    HELD_OUT,
    KEYS,
    Outcome,
    Plays,
    by_game,
    comparable,
    ends,
    plain,
    runs_trained,
)
from slim_rl.dialogue.log import log_files
from slim_rl.dialogue.measures import shown_in
from slim_rl.errors import DataError
from slim_rl.formats import count, words
from slim_rl.lab.askers import Askers, on_paper, over_random
from slim_rl.lab.experiment.contrasts import Contrast, Contrasts, Manifest
from slim_rl.lab.experiment.reach import LEVEL
from slim_rl.lab.gap import entered
from slim_rl.lab.net_reward import with_net_reward

NOT_RUN = "not run"


def read(manifest: Manifest) -> Plays:
    """Reads all logs of the manifest, a folder at a time. Raises DataError if those of its training runs hold no dialogue."""
    held_out, training, counted, warnings, made, units = [], [], [], [], [], []
    runs: dict[str, tuple[str, str]] = {}  # run -> its arm, and the model it started from
    askers, earned = Askers(manifest.most_questions), pd.DataFrame()
    for condition in sorted(manifest.sources, key=lambda name: name != HELD_OUT):
        for place in _places(manifest.sources[condition].logs):
            log = load([place])
            warnings += [text for text in log.warnings if not text.startswith("Without a reward")]
            made += log.provenance
            folder = str(log.files[0].path.parent)
            frame = plain(log.frame)
            if condition != HELD_OUT:  # whose arms' prices hold for them too
                frame = _of_runs(frame[frame["phase"] != TRAIN], runs)
            counted.append(_counts(log.frame, frame, condition))
            frame = with_net_reward(frame, manifest.prices)
            train = frame[frame["phase"] == TRAIN]
            played = entered(log, frame[frame["phase"] != TRAIN], manifest.prices, askers)
            played = played.assign(over_random=over_random(log, played, manifest.prices, askers))
            if condition == HELD_OUT:
                units.append(units_of(log.frame.assign(folder=folder)))
                if earned.empty:
                    treated = played[played["arm"] == manifest.treatment]
                    earned = on_paper(log, treated, manifest.prices, askers)
                names = [name for name in comparable() if name in train]
                means = train.groupby(["arm", "run", "step"])[names].mean().reset_index()
                training.append(means.assign(folder=folder))
                started = played.sort_values("step").groupby("run").first()
                runs |= {str(run): (row["arm"], row["policy"]) for run, row in started.iterrows()}
                played = ends(played, runs_trained(frame))
            held_out.append(by_game(played.assign(condition=condition)).assign(folder=folder))
    if not training:
        raise DataError(
            f"The manifest needs a source {HELD_OUT} with the logs of the training runs; none was found from the folder that this is run in."
        )
    arms, apart = pooled(pd.concat(units, ignore_index=True))
    counts = pd.concat(counted).groupby(COUNTS[:2]).sum().reset_index()
    return Plays(
        _renamed(pd.concat(held_out, ignore_index=True), arms).groupby(KEYS).mean().reset_index(),
        _renamed(pd.concat(training, ignore_index=True), arms),
        counts,
        list(dict.fromkeys([*warnings, *apart])),
        provenance.distinct(made),
        earned,
        manifest.treatment,
    )


def _renamed(rows: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Returns rows of several folders with the arms that all logs together make."""
    of_run = {key[:2]: name for key, name in names.items()}
    keys = map(tuple, rows[UNIT].itertuples(index=False))
    arms = [names.get(key) or of_run.get(key[:2], key[0]) for key in keys]
    return rows.assign(arm=arms).drop(columns="folder")


def _counts(all_of_it: pd.DataFrame, frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """`Plays.counts` of one folder's dialogues, all of them and those that are made use of."""
    used = frame.drop_duplicates(["file", "offset"]).groupby("run").size().rename("dialogues")
    own = all_of_it["run"].astype(str) if condition == HELD_OUT else pd.Series("", all_of_it.index, name="run")
    failed = all_of_it["failed"].groupby(own).sum().rename("failed")
    counts = pd.concat([used, failed], axis=1).fillna(0).astype(int).rename_axis("run").reset_index()
    return counts.assign(condition=condition)[COUNTS]


def left_out(plays: Plays, manifest: Manifest) -> list[str]:
    """What is missing or mixed in what the page is made from, in sentences."""
    played = set(plays.held_out["condition"])
    warnings = list(plays.warnings)
    if missing := [words(name) for name in manifest.sources if name not in {*played, HELD_OUT}]:
        warnings.append(f"No logs yet of {', '.join(missing)}.")
    if failed := int(plays.counts["failed"].sum()):
        warnings.append(f"Without a reward, so left out: {count(failed, 'failed dialogue')}.")
    warnings += _mixed(plays.provenance)
    if unplayed := sorted(plays.runs - plays.ended):
        warnings.append(f"Not played after training yet, so in the curves alone: {', '.join(unplayed)}.")
    return list(dict.fromkeys(warnings))


def _mixed(made: Sequence[provenance.Entry]) -> list[str]:
    """A warning where logs were written by several versions of the code, or by one that nobody can get."""
    versions = sorted({provenance.code_of(entry) for entry in made})
    if len(versions) > 1:
        return [f"The logs were written by several versions of the code: {'; '.join(versions)}."]
    return [f"The logs were written by {version}." for version in versions if "not committed" in version]


def _places(patterns: Sequence[str]) -> list[Path]:
    """The folders that directly hold logs, and files that were named themselves: little enough to be read at once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        anchor = Path(pattern).anchor
        for path in sorted(Path(anchor).glob(pattern.removeprefix(anchor))):
            logs = log_files(path) if path.is_file() or any(path.rglob("*.jsonl")) else []
            found.update(dict.fromkeys(log.parent if path.is_dir() else log for log in logs))
    return list(found)


def _of_runs(played: pd.DataFrame, runs: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Evaluations given to the runs whose models played: <run>/model is a run's after, the model it started from its before."""
    parts = []
    for policy, rows in played.groupby("policy"):
        model = Path(str(policy))
        run = model.parent.name if model.name == "model" else model.name
        if run in runs:
            parts.append(rows.assign(arm=runs[run][0], run=run, when="after"))
        for arm in dict.fromkeys(arm for arm, start in runs.values() if start == policy):
            parts.append(rows.assign(arm=arm, run="", when="before"))
    return pd.concat(parts, ignore_index=True) if parts else played.iloc[:0].assign(when="")


def seed_of_run(run: str) -> str:
    """'3' of a run that `slim-rl lab arms` named matching-shy-s3; else the run's own name."""
    return found[1] if (found := re.search(r"-s?(\d+)$", run)) else run


# -- contrasts ---------------------------------------------------------------------------------------------------------


def compare(plays: Plays, manifest: Manifest, contrasts: Contrasts) -> list[dict[str, Any]]:
    """Every contrast, in the order written down. Keys: the contrast's own; a, b (words); value, low, high, over; p_crossed,
    p_permutation and p, the larger of the two; least, the smallest p that so many runs allow; for primary ones p_holm, and
    least_holm, what that would be if all were as small as they can; runs, games, by_run; found (a word); note.
    """
    rows = [_compare(plays, manifest, contrast) for contrast in contrasts.contrasts]
    family = [row for row in rows if row["role"] == "primary"]
    holm = st.holm([1.0 if np.isnan(row["p"]) else row["p"] for row in family])  # what was not run still counts
    least = st.holm([1.0 if row["note"] == NOT_RUN else np.nan_to_num(row["least"]) for row in family])
    for row, p, smallest in zip(family, holm, least, strict=True):
        row["p_holm"] = float(p) if np.isfinite(row["p"]) else np.nan
        row["least_holm"] = float(smallest) if np.isfinite(row["least"]) else np.nan
    for row in rows:
        row["found"] = _found(row, holds(manifest))
    return rows


def holds(manifest: Manifest) -> str:
    """What is found of a contrast that came out as its direction says."""
    return "as predicted" if manifest.preregistered else "shown"


def _compare(plays: Plays, manifest: Manifest, spec: Contrast) -> dict[str, Any]:
    arms, weights = _arms(plays, manifest, spec)
    bounded = comparable()[spec.measure].bounded and spec.correlated_with is None
    bounded = bounded and not spec.doses and spec.reaches is None and all(side.times <= 1 for side in spec.outcomes)
    reach = 2.0 if isinstance(spec.b, Outcome) and spec.b.when == "change" else 1.0
    result = st.contrast(arms, weights, limit=reach if bounded else np.inf)
    means = st.run_means(arms)
    tested = st.permute(means, weights)
    p, least = float(np.maximum(result.p, tested.p)), tested.least
    if spec.margin is not None:
        p, least = (st.equivalence(result, spec.margin) if result.se > 0 else np.nan), np.nan
    note = NOT_RUN if min(map(len, means)) == 0 else result.note
    if spec.reaches is not None and not note:
        never = sum(int((table["step"] > plays.training["step"].max()).sum()) for table in arms)
        note = f"{never} of {sum(map(len, arms))} runs never reach it" if never else ""
    return {
        **spec.model_dump(include={"name", "measure", "correlated_with", "direction", "margin", "role", "reaches"}),
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


def _arms(plays: Plays, manifest: Manifest, spec: Contrast) -> tuple[list[pd.DataFrame], list[float]]:
    def table(outcome: Outcome) -> pd.DataFrame:
        if spec.reaches is not None:
            return plays.first_steps(outcome.arm, spec.measure, spec.reaches, manifest.window)
        if spec.correlated_with is not None:
            return outcome.times * plays.correlations(outcome, spec.measure, spec.correlated_with)
        return outcome.times * plays.table(outcome, spec.measure)

    if spec.doses:
        doses = np.array([dose for dose, _ in spec.doses])
        centred = doses - doses.mean()
        weights = (centred / (centred**2).sum()).tolist()
    elif isinstance(spec.b, Outcome):
        weights = [1.0, -1.0]
    else:
        (only,) = spec.outcomes
        return [table(only) - (spec.b or 0.0)], [1.0]
    tables = [table(outcome) for outcome in spec.outcomes]
    if len({outcome.arm for outcome in spec.outcomes}) > 1 or spec.reaches is not None:
        return tables, weights
    return [_within_runs(tables, weights)], [1.0]


def _within_runs(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> pd.DataFrame:
    """What the same policies did in several conditions, weighed run by run, and game by game where they played the same games."""
    runs = next((table.index for table in tables if list(table.index) != [""]), tables[0].index)
    # all runs have one start
    tables = [pd.concat([each] * len(runs)).set_axis(runs) if list(each.index) == [""] else each for each in tables]
    paired = _weighed(tables, weights)
    if min(map(len, tables)) == 0 or paired.notna().to_numpy().any():
        return paired.dropna(how="all", axis=1)
    return _weighed([each.mean(axis=1).to_frame("games") for each in tables], weights)


def _weighed(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> pd.DataFrame:
    return reduce(operator.add, (weight * table for weight, table in zip(weights, tables, strict=True)))


def _found(row: dict[str, Any], as_written: str) -> str:
    """What a contrast shows, in a few words; `as_written`, where it comes out in the direction that was written down."""
    p = row.get("p_holm", row["p"])
    if np.isnan(row["value"]):
        return NOT_RUN
    if np.isnan(p):
        return "cannot be told"
    if row["direction"] == "same":
        return as_written if p < LEVEL else "not shown"
    if p >= LEVEL:
        return "not shown"
    if row["direction"] == "any":
        return "they differ"
    return as_written if (row["value"] > 0) == (row["direction"] == "more") else "the opposite"


def by_seed(plays: Plays, measures: Sequence[str]) -> pd.DataFrame:
    """The numbers of each run: condition, arm, run, seed, when, games, and the mean of every measure."""
    frame = plays.held_out
    names = [name for name in dict.fromkeys((*measures, *(each.name for each in shown_in("report")))) if name in frame]
    grouped = frame.groupby(KEYS[:-1])
    table = grouped[names].mean().assign(games=grouped.size()).reset_index()
    table.insert(3, "seed", [seed_of_run(run) for run in table["run"]])
    return table
