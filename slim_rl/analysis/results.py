"""From the frame of dialogues to every number that the report shows, as one JSON-able dict.

The invariant: figures, tables and `summary.json` are drawn from this dict alone, so they cannot disagree. Training
dialogues make the curves, trends and correlations; all other phases make the held-out tables. Failed dialogues have
no reward: they are counted among the stop reasons and left out of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.load import TRAIN
from slim_rl.analysis.partner_faults import partner_faults
from slim_rl.analysis.verdict import over_seeds, sentences
from slim_rl.dialogue.measures import MEASURES, OF_KIND, shown_in
from slim_rl.formats import PER_STEPS

BINS = 25  # points of a curve over training, at most
MANY = 8  # games with so many questions or more share a point


def summarise(
    frame: pd.DataFrame, draws: int = st.DRAWS, seed: int = 0, kinds: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """All numbers, from a frame as `load` makes it.

    Args:
        kinds: the kinds of question that the frame counts, and what a reader is told of each.
    """
    kinds = kinds or {}
    played = frame[~frame["failed"]]
    names = [m.name for m in shown_in("report") if m.name in frame and frame[m.name].notna().any()]
    train = played[(played["phase"] == TRAIN) & played["step"].notna()]
    held_out = _held_out(played[played["phase"] != TRAIN], names, seed)
    arms = [str(arm) for arm in frame["arm"].cat.categories]
    per = _slope_steps(train)
    slopes = st.Slopes.fit(train, names, draws, seed, per) if len(train) else None
    return {
        "seed": seed,
        "draws": draws,
        "many": MANY,
        "per_steps": per,
        "counts": {
            "dialogues": len(frame),
            "played": len(played),
            "train": len(train),
            "games": int(frame["cluster"].nunique()),
        },
        "arms": arms,
        "measures": {
            n: {"title": MEASURES[n].title, "share": MEASURES[n].share, "role": MEASURES[n].role} for n in names
        },
        "runs": list(_runs(frame)),
        "curves": {arm: _curves(train[train["arm"] == arm], names) for arm in arms},
        "ends": {arm: _ends(train[train["arm"] == arm], names) for arm in arms},
        "question_kinds": dict(kinds),
        "kinds": {arm: _kinds(train[train["arm"] == arm], kinds) for arm in arms},
        "stop_reasons": {arm: _stop_reasons(frame[(frame["arm"] == arm) & (frame["phase"] == TRAIN)]) for arm in arms},
        "trends": _trends(slopes, names, arms) if slopes else [],
        "differences": _differences(slopes, names, arms) if slopes else [],
        "reward_by_questions": {arm: _by_count(played[played["arm"] == arm], "questions") for arm in arms},
        "reward_by_pairs": {arm: _by_count(played[played["arm"] == arm], "informative_pairs") for arm in arms},
        "correlations": [row for arm in arms for row in _correlations(train[train["arm"] == arm], arm, draws, seed)],
        "held_out": held_out,
        "verdict": list(_verdicts(held_out["paired"])),
        "partner_faults": list(partner_faults(frame, TRAIN)),
    }


def _slope_steps(train: pd.DataFrame) -> int:
    """How many steps slopes are given per: no more than the longest run has."""
    steps = train.groupby(["arm", "run"], observed=True)["step"]
    return min(PER_STEPS, int((steps.max() - steps.min()).max()) + 1) if len(train) else PER_STEPS


def verdicts(frame: pd.DataFrame, seed: int = 0) -> list[dict[str, Any]]:
    """The verdict of `summarise` alone: `arm`, `partner` and `sentences`, one row an arm and partner."""
    played = frame[~frame["failed"] & (frame["phase"] != TRAIN)]
    return list(_verdicts(_held_out(played, ["questions", "reward"], seed)["paired"]))


def _runs(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for (arm, run), rows in frame.groupby(["arm", "run"], observed=True):
        steps = rows.loc[rows["phase"] == TRAIN, "step"].dropna()
        yield {
            "arm": arm,
            "run": run,
            "dialogues": len(rows),
            "games": int(rows["cluster"].nunique()),
            "failed": int(rows["failed"].sum()),
            "first_step": float(steps.min()) if len(steps) else None,
            "last_step": float(steps.max()) if len(steps) else None,
            "phases": {str(k): int(v) for k, v in rows["phase"].value_counts().items() if v},
            "policies": sorted(map(str, rows["policy"].unique())),
            "partners": sorted(map(str, rows["partner"].unique())),
        }


# -- over training -----------------------------------------------------------------------------------------------------


def _bins(steps: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Which point of a curve each row belongs to, and the points' mean steps: one a step, or BINS equally wide ones."""
    distinct = np.unique(steps)
    if len(distinct) <= BINS:
        index = np.searchsorted(distinct, steps)
    else:
        edges = np.linspace(distinct[0], distinct[-1], BINS + 1)
        index = np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, BINS - 1)
        index = np.unique(index, return_inverse=True)[1]
    size = np.bincount(index)
    return index, np.bincount(index, steps) / size


def _curves(rows: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    curves: dict[str, Any] = {"steps": steps.tolist(), "measures": {}}
    for name in names:
        table = st.clustered_means(
            rows[name], rows["cluster"].cat.codes, index, MEASURES[name].bounded, MEASURES[name].signed
        )
        table = table.reindex(range(len(steps)))
        by_run = rows.assign(bin=index).groupby(["run", "bin"], observed=True)[name].mean().unstack("bin")
        by_run = by_run.reindex(columns=range(len(steps)))
        curves["measures"][name] = {
            **{key: table[key].tolist() for key in ("mean", "low", "high", "n", "clusters")},
            "runs": {str(run): values.tolist() for run, values in zip(by_run.index, by_run.to_numpy(), strict=True)},
        }
    return curves


def _ends(rows: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    """Means over the first and the last tenth of the steps."""
    if rows["step"].nunique() < 2:
        return {}
    low, high = rows["step"].min(), rows["step"].max()
    sides = {"first": rows["step"] <= low + (high - low) / 10, "last": rows["step"] >= high - (high - low) / 10}
    return {name: {side: asdict(_mean(rows[these], name)) for side, these in sides.items()} for name in names}


def _mean(rows: pd.DataFrame, name: str) -> st.Estimate:
    return st.clustered_mean(rows[name], rows["cluster"].cat.codes, MEASURES[name].bounded, MEASURES[name].signed)


def _kinds(rows: pd.DataFrame, kinds: Iterable[str]) -> dict[str, Any]:
    """Share of each kind among the questions of each point; a message of two kinds counts for both."""
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    sums = rows[[OF_KIND + kind for kind in kinds]].groupby(index).sum()
    total = sums.sum(axis=1)
    shares = sums.div(total.where(total > 0), axis=0)
    return {
        "steps": steps.tolist(),
        "questions_any": total.tolist(),
        "shares": {kind: shares[OF_KIND + kind].tolist() for kind in kinds},
    }


def _stop_reasons(rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows[rows["step"].notna()]
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    shares = pd.crosstab(index, rows["stop_reason"].astype(str).to_numpy(), normalize="index")
    counts = rows["stop_reason"].astype(str).value_counts()
    return {
        "steps": steps.tolist(),
        "shares": {str(reason): shares[reason].tolist() for reason in counts.index},
        "counts": {str(reason): int(count) for reason, count in counts.items()},
    }


def _trends(slopes: st.Slopes, names: list[str], arms: list[str]) -> list[dict[str, Any]]:
    """One row an arm and measure; corrections are over the primary measures of all arms."""
    rows = []
    for arm in arms:
        for name in names if slopes.of_arm(arm) else []:
            games, runs = slopes.arm(arm, name), slopes.over_runs(arm, name)
            rows.append(
                {
                    "arm": arm,
                    "measure": name,
                    **asdict(games),
                    "p": _larger(games.p, runs.p),
                    "runs": len(slopes.of_arm(arm)),
                    "runs_low": runs.low,
                    "runs_high": runs.high,
                    "p_games": games.p,
                    "by_run": slopes.value[slopes.of_arm(arm), slopes.measures.index(name)].tolist(),
                    "note": games.note or runs.note,
                }
            )
    return _corrected(rows)


def _differences(slopes: st.Slopes, names: list[str], arms: list[str]) -> list[dict[str, Any]]:
    """The first arm's slope minus each other arm's."""
    rows = []
    for other in arms[1:]:
        for name in names if slopes.of_arm(arms[0]) and slopes.of_arm(other) else []:
            games, runs, permuted = slopes.difference(arms[0], other, name)
            least = f"least possible p {permuted.least:.2g}" if np.isfinite(permuted.least) else ""
            rows.append(
                {
                    "arm": arms[0],
                    "other": other,
                    "measure": name,
                    **asdict(games),
                    "p": _larger(games.p, runs.p),
                    "p_games": games.p,
                    "runs_low": runs.low,
                    "runs_high": runs.high,
                    "p_permutation": permuted.p,
                    "note": "; ".join(dict.fromkeys(note for note in (games.note, runs.note, least) if note)),
                }
            )
    return _corrected(rows)


def _larger(games: float, runs: float) -> float:
    """A change must show over games and over runs: runs that share their games say nothing of other games, nor games of seeds."""
    return games if np.isnan(runs) else max(games, runs)


def _corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    family = [row for row in rows if MEASURES[row["measure"]].role == "primary"]
    p = [row["p"] for row in family]
    for row, holm, bh in zip(family, st.adjust(p, "holm"), st.adjust(p, "fdr_bh"), strict=True):
        row["p_holm"], row["q_bh"] = float(holm), float(bh)
    return rows


# -- questions and reward ----------------------------------------------------------------------------------------------


def _by_count(rows: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """Mean reward of the dialogues with 0, 1, 2, ... of `name`; the last row is "MANY or more"."""
    rows = rows[rows["reward"].notna() & rows[name].notna()] if name in rows else rows.iloc[:0]
    if rows.empty:
        return []
    count = rows[name].clip(upper=MANY).round().astype(int)
    table = st.clustered_means(rows["reward"], rows["cluster"].cat.codes, count, bounded=True)
    points = table.rename_axis("count").reset_index().astype(float).to_dict(orient="records")
    return [{str(key): value for key, value in point.items()} for point in points]


def _correlations(rows: pd.DataFrame, arm: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Correlation of questions and reward: plain, given words, given words and step, and within the group that GRPO compares."""
    if rows.empty:
        return
    group = rows.groupby(["run", "step", "cluster"], observed=True, sort=False).ngroup().to_numpy()
    x, y, words, step = (rows[name].to_numpy(float) for name in ("questions", "reward", "words", "step"))
    ways: list[tuple[str, list[np.ndarray], np.ndarray | None]] = [
        ("nothing", [], None),
        ("words", [words], None),
        ("words and step", [words, step], None),
        ("words, within a game and step", [words], group),
    ]
    cluster = rows["cluster"].cat.codes.to_numpy()
    for given, covariates, within in ways:
        methods: tuple[Literal["pearson", "spearman"], ...] = (
            ("pearson", "spearman") if within is None else ("pearson",)
        )
        for method in methods:
            estimate = st.partial_correlation(
                x, y, cluster, given=covariates, within=within, method=method, draws=draws, seed=seed
            )
            yield {"arm": arm, "given": given, "method": method, **asdict(estimate)}


# -- held-out games ----------------------------------------------------------------------------------------------------


def _held_out(rows: pd.DataFrame, names: list[str], seed: int) -> dict[str, Any]:
    """A cell is an arm at a checkpoint against a partner; its first and last checkpoint are compared game by game."""
    cells: list[dict[str, Any]] = []
    paired: list[dict[str, Any]] = []
    keys = ["arm", "partner", "phase", "step"]
    for (arm, partner), part in rows.groupby(keys[:2], observed=True):
        checkpoints = list(part.groupby(keys[2:], observed=True, dropna=False))
        checkpoints.sort(key=lambda item: _order(item[0]))
        for (phase, step), cell in checkpoints:
            cells.append(
                {
                    "arm": arm,
                    "partner": partner,
                    "phase": phase,
                    "step": step,
                    "runs": int(cell["run"].nunique()),
                    "measures": {n: asdict(_mean(cell, n)) for n in names},
                }
            )
        (before, first), (after, last) = checkpoints[0], checkpoints[-1]
        changes = _changes(first, last, names) if before != after else {}
        for name in names if before != after else []:
            one, two = (side.set_index(side["cluster"].astype(str))[name] for side in (first, last))
            test = st.paired_comparison(one, two, seed=seed, bounded=MEASURES[name].bounded)
            by_run = changes[name].mean(axis=1)
            over_runs = st.mean_over_runs(by_run)
            paired.append(
                {
                    "arm": arm,
                    "partner": partner,
                    "measure": name,
                    "from": {"phase": before[0], "step": before[1]},
                    "to": {"phase": after[0], "step": after[1]},
                    "before": test.before,
                    "after": test.after,
                    **asdict(test.difference),
                    "effect": test.effect,
                    **over_seeds(changes[name], MEASURES[name].bounded),
                    "by_run": by_run.dropna().tolist(),
                    "runs_low": over_runs.low,
                    "runs_high": over_runs.high,
                }
            )
    return {"cells": cells, "paired": _corrected(paired)}


def _verdicts(paired: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Whether each arm learned to ask, and whether that helped, in sentences; one row an arm and partner."""
    rows = {(row["arm"], row["partner"], row["measure"]): row for row in paired}
    for arm, partner, measure in rows:
        if measure == "questions" and (reward := rows.get((arm, partner, "reward"))) is not None:
            said = sentences(rows[arm, partner, "questions"], reward)
            yield {"arm": arm, "partner": partner, "sentences": said}


def _changes(first: pd.DataFrame, last: pd.DataFrame, names: list[str]) -> dict[str, pd.DataFrame]:
    """The change of each measure on the games that a run played before and after: a row a run, a column a game."""
    keys = ["run", "cluster"]
    before, after = (side.astype(dict.fromkeys(keys, str)).groupby(keys)[names].mean() for side in (first, last))
    change = after - before
    return {name: change[name].unstack("cluster") for name in names}


def _order(checkpoint: Any) -> tuple[float, str]:
    """Checkpoints (phase, step) in the order of training; those without a step first."""
    phase, step = checkpoint
    return (-1.0 if np.isnan(step) else step, phase)
