"""Changes of measures from before to after training, per arm and condition, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slim_rl import statistics as st
from slim_rl.analysis.arms import order_arms
from slim_rl.analysis.plays import Outcome, Plays, comparable, difference_of
from slim_rl.analysis.verdict import sentences


def by_arm(plays: Plays, measures: Sequence[str], first: str = "") -> list[dict[str, Any]]:
    """Returns one row per condition, arm and measure: before, after and change, each with its 95% interval.

    Args:
        first: condition that comes before the others.
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
    """Returns before, after and change of a measure, each with its interval, as `verdict.sentences` reads them.

    Keys:
        before, after: means; with _low and _high their intervals.
        value, low, high, p: the change.
        over: unit of the intervals: seeds and games, or games if there is one run.
        clusters: number of games of the change.
        runs, games: number of runs, and of games after training.
        by_run: change in each run.
        next_low, next_high: prediction interval of one more run.
    """
    about = comparable()[measure]
    bounded = about.bounded
    tables = {
        when: plays.table(Outcome(arm=arm, when=when, condition=condition), measure)  # type: ignore[arg-type]
        for when in ("before", "after")
    }
    moved = difference_of(**tables).dropna(how="all")
    games, by_run = moved.mean().dropna(), moved.mean(axis=1)
    if len(by_run):  # leave out runs that were played on one side only
        tables = {when: table.loc[table.index.intersection(["", *moved.index])] for when, table in tables.items()}
    out: dict[str, Any] = {}
    sides = []
    for when, table in tables.items():
        sides.append(table[games.index] if len(by_run) == 1 else table)  # one run: only the paired games
        mean = st.arm_mean(sides[-1], bounded, about.signed, about.ceiling)
        out |= {when: mean.value, f"{when}_low": mean.low, f"{when}_high": mean.high, "over": mean.over}
        out |= {"runs": int(table.notna().any(axis=1).sum()), "games": mean.clusters}
    difference = st.contrast([moved], [1.0], limit=1.0 if bounded else np.inf)
    if len(by_run) == 1:
        before, after = (side.mean() for side in sides)
        difference = st.paired_comparison(before, after, bounded=bounded).difference
    prediction = st.next_run(by_run.to_numpy(float))
    return {
        **out,
        **{name: getattr(difference, name) for name in ("value", "low", "high", "p", "clusters")},
        "over": difference.over if len(by_run) else out["over"],
        "by_run": by_run.tolist(),
        **dict(zip(("next_low", "next_high"), prediction, strict=True)),
    }


def verdicts(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the verdict (`verdict.sentences`) per arm and condition that was played before and after training."""
    by_key = {(row["arm"], row["condition"], row["measure"]): row for row in rows}
    for (arm, condition, measure), reward in by_key.items():
        if measure == "reward" and reward["by_run"] and (arm, condition, "questions") in by_key:
            text = sentences(by_key[arm, condition, "questions"], reward)
            yield {"arm": arm, "condition": condition, "sentences": text}
