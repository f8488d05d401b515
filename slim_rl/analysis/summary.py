"""Numbers of the report, computed from the frame of dialogues, as one JSON-able dict.

Invariants:
    Figures, tables and `summary.json` are made from this dict alone, so that they agree.
    Training dialogues make the curves; all other phases make the held-out tables (`plays`).
    Failed dialogues have no reward: only the stop reasons count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.changes import by_arm, verdicts
from slim_rl.analysis.compared import cells_of, compare
from slim_rl.analysis.partner_faults import partner_faults
from slim_rl.analysis.plays import of_frame
from slim_rl.dialogue.measures import MEASURES, OF_KIND, shown_in

BINS = 25  # maximum number of points of a curve over training
MANY = 8  # dialogues with this many questions or more share a point


def summarise(frame: pd.DataFrame, seed: int = 0, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns all numbers from a frame of `load`.

    Args:
        seed: seed of the permutation tests.
        kinds: title of each kind of question in the frame; None: the frame counts no kinds.
    """
    kinds = kinds or {}
    played = frame[~frame["failed"]]
    names = [m.name for m in shown_in("report") if m.name in frame and _is_shown(frame, m.name)]
    plays = of_frame(frame)
    held_out = by_arm(plays, names)
    training = over_training(frame, names, kinds)
    return {
        "seed": seed,
        "many": MANY,
        "counts": {
            "dialogues": len(frame),
            "played": len(played),
            "train": int((frame["phase"] == TRAIN).sum()),
            "games": int(frame["cluster"].nunique()),
        },
        **training,
        "runs": runs(frame),
        "reward_by_questions": {arm: _by_count(played[played["arm"] == arm], "questions") for arm in training["arms"]},
        "reward_by_pairs": {
            arm: _by_count(played[played["arm"] == arm], "informative_pairs") for arm in training["arms"]
        },
        "correlations": list(_correlations(played)),
        "held_out": held_out,
        "checkpoints": checkpoints(frame, names),
        "verdict": list(verdicts(held_out)),
        "partner_faults": list(partner_faults(frame, TRAIN)),
        "compared": compare(cells_of(frame), seed),
    }


def _is_shown(frame: pd.DataFrame, name: str) -> bool:
    """Returns True if the measure has values; questions are always shown, as "not measured" if they have none."""
    return name == "questions" or bool(frame[name].notna().any())


def over_training(frame: pd.DataFrame, names: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Returns the numbers of the figures over training: curves of these measures, shares of question kinds and stop reasons."""
    steps = frame[(frame["phase"] == TRAIN) & frame["step"].notna()]
    train = steps[~steps["failed"]]
    arms = [str(arm) for arm in frame["arm"].cat.categories]
    return {
        "arms": arms,
        "measures": {name: MEASURES[name].about for name in names},
        "curves": {arm: _curves(train[train["arm"] == arm], names) for arm in arms},
        "ends": {arm: _ends(train[train["arm"] == arm], names) for arm in arms},
        "question_kinds": dict(kinds),
        "kinds": {arm: _kinds(train[train["arm"] == arm], kinds) for arm in arms},
        "stop_reasons": {arm: _stop_reasons(steps[steps["arm"] == arm]) for arm in arms},
    }


def runs(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns dialogues, games, failures, steps, phases, policies and partners of each run."""
    return [_run(arm, run, rows) for (arm, run), rows in frame.groupby(["arm", "run"], observed=True)]


def _run(arm: Any, run: Any, rows: pd.DataFrame) -> dict[str, Any]:
    steps = rows.loc[rows["phase"] == TRAIN, "step"].dropna()
    return {
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
    """Returns each row's point on a curve, and the mean step of each point.

    There is one point per step, or BINS of equal width if there are more steps.
    """
    distinct = np.unique(steps)
    if len(distinct) <= BINS:
        index = np.searchsorted(distinct, steps)
    else:
        edges = np.linspace(distinct[0], distinct[-1], BINS + 1)
        index = np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, BINS - 1)
        index = np.unique(index, return_inverse=True)[1]
    size = np.bincount(index)
    return index, np.bincount(index, steps) / size


def _curves(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
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


def _ends(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Returns means over the first and the last tenth of the steps."""
    if rows["step"].nunique() < 2:
        return {}
    low, high = rows["step"].min(), rows["step"].max()
    sides = {"first": rows["step"] <= low + (high - low) / 10, "last": rows["step"] >= high - (high - low) / 10}
    return {name: {side: asdict(_mean(rows[these], name)) for side, these in sides.items()} for name in names}


def _mean(rows: pd.DataFrame, name: str) -> st.Estimate:
    return st.clustered_mean(rows[name], rows["cluster"].cat.codes, MEASURES[name].bounded, MEASURES[name].signed)


def _kinds(rows: pd.DataFrame, kinds: Iterable[str]) -> dict[str, Any]:
    """Returns the share of each kind of question at each point; a message of two kinds counts for both."""
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


# -- questions and reward ----------------------------------------------------------------------------------------------


def _by_count(rows: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """Returns the mean reward by count of `name`: 0, 1, 2, ..., and MANY or more."""
    rows = rows[rows["reward"].notna() & rows[name].notna()] if name in rows else rows.iloc[:0]
    if rows.empty:
        return []
    count = rows[name].clip(upper=MANY).round().astype(int)
    table = st.clustered_means(rows["reward"], rows["cluster"].cat.codes, count, bounded=True)
    points = table.rename_axis("count").reset_index().astype(float).to_dict(orient="records")
    return [{str(key): value for key, value in point.items()} for point in points]


def _correlations(played: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the correlation of questions and reward among dialogues of one game, per arm, in training and on held-out games."""
    when = np.where(played["phase"] == TRAIN, "training", "held-out games")
    together = played.groupby(
        ["run", "step", "phase", "partner", "mode", "cluster"], observed=True, dropna=False
    ).ngroup()
    for (arm, phase), rows in played.groupby(["arm", when], observed=True):
        columns = (rows["questions"], rows["reward"], together[rows.index], rows["cluster"].astype(str))
        correlation = st.within_correlation(*columns)
        if np.isfinite(correlation.value):
            yield {"arm": arm, "when": phase, **asdict(correlation)}


# -- held-out games ----------------------------------------------------------------------------------------------------


def checkpoints(frame: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns means on held-out games per arm, partner and checkpoint, in the order of training."""
    rows = frame[(frame["phase"] != TRAIN) & ~frame["failed"]]
    keys = ["arm", "partner", "step", "phase"]
    return [
        {
            "arm": arm,
            "partner": partner,
            "phase": phase,
            "step": step,
            "runs": int(cell["run"].nunique()),
            "measures": {name: asdict(_mean(cell, name)) for name in names},
        }
        for (arm, partner, step, phase), cell in rows.groupby(keys, observed=True, dropna=False)
    ]
