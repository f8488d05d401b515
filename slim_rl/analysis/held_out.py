"""Held-out games before and after training, and the differences between policies on the same games.

A condition is what held-out games were played under: a partner, a mixture of them, or a source of an experiment.

Invariants:
    The unit of comparison is one number per run and held-out game: `held_out` has one row per condition, arm, run, when (before,
    after) and game; run is "" for an initial policy that was evaluated for all runs of the arm. Failed dialogues are left out.
    A difference is over the games that both sides played, paired by game.
    Two policies are compared only if at most one of policy, partner and mode differs; the one named first is the baseline, whatever
    the result. Trained arms are compared with the first arm.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from operator import ne
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.arms import TRAIN, TREATMENT, order_arms
from slim_rl.config import MIXTURE
from slim_rl.dialogue.measures import Measure, shown_in

KEYS = ["condition", "arm", "run", "when", "game"]
COMPARED: dict[str, Measure] = {}  # further measures, registered by the modules that compute them
EMPTY = pd.DataFrame()


def comparable() -> dict[str, Measure]:
    """Returns the measures that runs can be compared by, by name."""
    return {measure.name: measure for measure in shown_in("report")} | COMPARED


def held_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the held-out games of a frame of `load`; a condition is a partner, or a mixture as a whole."""
    played = completed(frame[frame["phase"] != TRAIN])
    played = played.assign(condition=played["partner"].astype(str))
    played = pd.concat([played, played[of_mixture(played)].assign(condition=MIXTURE)])
    return by_game(ends(played, runs_trained(frame), ["condition", "arm", "run"]))


def of_mixture(frame: pd.DataFrame) -> pd.Series:
    """Returns True for the dialogues of an arm with a mixture of partners."""
    several = frame["partner"].astype(str).groupby(frame["arm"].astype(str)).transform("nunique") > 1
    return several & frame["settings"].astype(str).str.contains('"partner.mixture.', regex=False)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the dialogues that did not fail, with names as text."""
    return frame[~frame["failed"].astype(bool)].astype(dict.fromkeys(("arm", "run", "policy", "cluster"), str))


def runs_trained(frame: pd.DataFrame) -> set[str]:
    """Returns the names of the runs with training dialogues."""
    return set(frame.loc[frame["phase"] == TRAIN, "run"].astype(str))


def ends(played: pd.DataFrame, trained: Collection[str], runs: Sequence[str] = ("run",)) -> pd.DataFrame:
    """Returns the dialogues of each run's initial policy ("before") and last checkpoint ("after"); others are dropped.

    A single checkpoint counts as "after", except step 0 of a run in `trained`, which counts as "before".
    """
    played = played.assign(step=played["step"].fillna(-1.0))  # a log of `evaluate` has no step
    first, last = (played.groupby(list(runs))["step"].transform(end) for end in ("min", "max"))
    untrained = played["run"].isin(trained) & (last == 0)
    played = played.assign(when=np.where((played["step"] == last) & ~untrained, "after", "before"))
    return played[(played["step"] == last) | ((played["step"] == first) & (first <= 0))]


def by_game(played: pd.DataFrame) -> pd.DataFrame:
    """Returns the table of held-out games, from dialogues with the columns condition and when."""
    names = [name for name in comparable() if name in played]
    return played.assign(game=played["cluster"]).groupby(KEYS)[names].mean().reset_index()


def table(games: pd.DataFrame, condition: str, arm: str, when: str) -> pd.DataFrame:
    """Returns runs × games of every measure: the columns are pairs of a measure and a game."""
    rows = games[(games["condition"] == condition) & (games["arm"] == arm) & (games["when"] == when)]
    return rows.drop(columns=["condition", "arm", "when"]).pivot(index="run", columns="game")


def difference_of(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Returns after minus before, per run and game."""
    if list(before.index) == [""]:  # all runs share one initial policy
        return after - before.reindex(columns=after.columns).loc[""] if len(after) else after
    return after - before


# -- before and after --------------------------------------------------------------------------------------------------


def by_arm(
    games: pd.DataFrame, measures: Sequence[str], first: str = "", treatment: str = TREATMENT
) -> list[dict[str, Any]]:
    """Returns one row per condition, arm and measure: before, after and change, each with its 95% interval (`change`).

    Args:
        first: condition that comes before the others.
        treatment: arm that comes before the others.
    """
    after = games[games["when"] == "after"]
    seen = dict.fromkeys(zip(after["condition"], after["arm"], strict=True))
    arms = order_arms({arm for _, arm in seen}, treatment)
    return [
        {"condition": condition, "arm": arm, "measure": measure, **change(sides, measure)}
        for condition, arm in sorted(seen, key=lambda pair: (pair[0] != first, arms.index(pair[1]), pair[0]))
        for sides in [{when: table(games, condition, arm, when) for when in ("before", "after")}]
        for measure in measures
    ]


def change(sides: Mapping[str, pd.DataFrame], measure: str) -> dict[str, Any]:
    """Returns before, after and change of a measure, each with its interval, as `verdict.sentences` reads them.

    Args:
        sides: before and after, each a `table`.

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
    tables = {when: side.get(measure, EMPTY) for when, side in sides.items()}
    moved = st.played(difference_of(**tables))
    (by_run,), over, common = st.run_means([moved]), st.BOTH, moved.columns
    if len(by_run) == 1:  # only the paired games
        moved, over = moved.dropna(axis=1), st.GAMES
        common = moved.columns
    out: dict[str, Any] = {}
    for when, side in tables.items():
        if len(by_run):  # leave out runs that were played on one side only
            side = side[side.index.isin(["", *moved.index])]
        mean = st.arm_mean(side[common] if over == st.GAMES else side, about.within)
        out |= {when: mean.value, f"{when}_low": mean.low, f"{when}_high": mean.high, "over": mean.over}
        out |= {"runs": len(st.played(side)), "games": mean.clusters}
    difference = st.contrast([moved], [1.0], about.span, over)
    return {
        **out,
        **{name: getattr(difference, name) for name in ("value", "low", "high", "p", "clusters")},
        "over": difference.over if len(by_run) else out["over"],
        "by_run": by_run.tolist(),
        **dict(zip(("next_low", "next_high"), st.next_run(by_run), strict=True)),
    }


# -- policies, paired by game ------------------------------------------------------------------------------------------


class PlayedCell(NamedTuple):
    """Policy that played held-out games; `games` has its measures, one row per dialogue, indexed by game."""

    name: str
    policy: str
    partner: str
    mode: str
    games: pd.DataFrame
    trained: bool = False


def compare(cells: Sequence[PlayedCell]) -> list[dict[str, Any]]:
    """Returns one row per pair of policies that share at least two games: the later minus the earlier.

    Pairs of policies in free play come first.
    """
    pairs = [(a, b) for a, b in combinations(cells, 2) if sum(map(ne, a[1:4], b[1:4])) < 2]
    pairs = [(a, b) for a, b in pairs if a is cells[0] or not a.trained]
    pairs.sort(key=lambda pair: (pair[0].policy == pair[1].policy, pair[0].mode != "free"))
    return [
        {"first": a.name, "second": b.name, "games": games, "measures": dict(_differences(a, b))}
        for a, b in pairs
        if (games := len(set(a.games.index) & set(b.games.index))) > 1
    ]


def cells_of(frame: pd.DataFrame) -> list[PlayedCell]:
    """Returns the policies, one per arm, from a frame of `load`: those of an evaluation, or the arms after training.

    Skips arms with several checkpoints, policies or partners; a mixture counts as one partner.
    """
    played = completed(frame[frame["phase"] != TRAIN])
    played["partner"] = played["partner"].astype(str).where(~of_mixture(played), MIXTURE)
    if trained := runs_trained(frame):
        played = ends(played, trained, ["partner", "arm", "run"])
        played = played[played["when"] == "after"]
        played["policy"] = played["policy"].where(~played["run"].isin(trained), played["arm"])  # each seed has its own
    cells = []
    for arm in frame["arm"].cat.categories:
        rows = played[played["arm"] == arm]
        same = ["policy", "partner", "phase", *["step"] * (not trained)]  # seeds may be at unlike steps
        if (rows[same].nunique(dropna=False) == 1).all():
            first, mode = rows.iloc[0], Counter(rows["mode"]).most_common(1)[0][0]  # forced:K has few with fewer
            games = rows.set_index("cluster")
            cells.append(PlayedCell(arm, first["policy"], first["partner"], mode, games, bool(trained)))
    return cells


def _differences(a: PlayedCell, b: PlayedCell) -> Iterator[tuple[str, dict[str, Any]]]:
    several = min(cell.games["run"].nunique() for cell in (a, b)) > 1
    for measure in shown_in("first screen"):
        one, two = (
            cell.games.assign(run=cell.games["run"] if several else "").pivot_table(
                measure.name, "run", pd.Grouper(level=0)
            )
            for cell in (a, b)
        )
        one, two = one.align(two, join="inner", axis=1)
        arms, weights, over = [two, one], [1.0, -1.0], st.BOTH
        if not several:
            arms, weights, over = [two - one], [1.0], st.GAMES
        difference = st.contrast(arms, weights, measure.span, over)
        yield measure.name, {"before": st.arm_mean(one).value, "after": st.arm_mean(two).value, **asdict(difference)}
