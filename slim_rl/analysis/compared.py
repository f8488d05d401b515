"""Policies compared on the games that both played: those of an evaluation in pairs, or two runs.

The invariant: a difference is one cell's mean less another's over the same games, paired game by game, and two cells are compared
only if at most one thing differs between them: the policy, its partner, or the mode of play. Of the two the cell that was named first
is the baseline, whatever came out. Pairs of policies that play freely come before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.load import load
from slim_rl.analysis.plays import of_frame
from slim_rl.dialogue.measures import MEASURES, shown_in
from slim_rl.errors import DataError
from slim_rl.formats import count, interval, known, plain, words

FLIPS = 1999  # of signs, for each p: there may be many pairs


@dataclass(frozen=True, slots=True)
class PlayedCell:
    """One policy, partner and mode. `games`: its measures, one row a dialogue, indexed by game."""

    name: str
    policy: str
    partner: str
    mode: str
    games: pd.DataFrame

    def differs(self, other: PlayedCell) -> int:
        """In how many of policy, partner and mode."""
        return sum(getattr(self, name) != getattr(other, name) for name in ("policy", "partner", "mode"))


def cells_of(frame: pd.DataFrame) -> list[PlayedCell]:
    """The cells of an evaluation, from a frame as `load` makes it: one an arm. None where there is training, nor of an arm that has
    several checkpoints, policies or partners.
    """
    if (frame["phase"] == "train").any():
        return []
    cells = []
    for arm, rows in frame[~frame["failed"]].groupby("arm", observed=True):
        if (rows[["policy", "partner", "phase", "step"]].nunique(dropna=False) == 1).all():
            first = rows.iloc[0]
            games = rows.set_index(rows["cluster"].astype(str))
            cells.append(PlayedCell(str(arm), first["policy"], first["partner"], usual(rows["mode"]), games))
    return cells


def usual(modes: Iterable[str]) -> str:
    """The mode of a cell: where games offer fewer questions than `forced:K` asks for, that of most games."""
    return Counter(modes).most_common(1)[0][0]


def compare(cells: Sequence[PlayedCell], seed: int = 0) -> list[dict[str, Any]]:
    """One row a pair of cells that share at least two games: each cell less every one before it in `cells`.

    Keys:
        first, second: the names of the baseline and of the other.
        games: how many both played.
        measures: name -> `before` (the first's mean), `after` (the second's), the difference `value` with `low`, `high` and `p`.
    """
    pairs = [pair for pair in combinations(cells, 2) if pair[0].differs(pair[1]) <= 1]
    pairs.sort(key=lambda pair: (pair[0].policy == pair[1].policy, pair[0].mode != "free"))
    return [
        {"first": a.name, "second": b.name, "games": games, "measures": dict(_differences(a, b, seed))}
        for a, b in pairs
        if (games := len(set(a.games.index) & set(b.games.index))) > 1
    ]


def _differences(a: PlayedCell, b: PlayedCell, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for measure in shown_in("first screen"):
        one, two = (cell.games[measure.name].astype(float) for cell in (a, b))
        test = st.paired_comparison(one, two, seed=seed, resamples=FLIPS, bounded=measure.bounded)
        yield measure.name, {"before": test.before, "after": test.after, **asdict(test.difference)}


def compare_runs(first: str | Path, second: str | Path) -> dict[str, Any]:
    """How the second run, or the runs of an arm, differs from the first on the held-out games that both played, at the end of each: a row
    as of `compare`, with every measure. Its intervals are over games; over seeds and games where both have several runs.

    Raises:
        DataError: a log holds no held-out game, or those of several arms or partners; or no game is in both.
    """
    sides = [_ended(log) for log in (first, second)]
    games = sorted(set(sides[0]["game"]) & set(sides[1]["game"]))
    if not games:
        raise DataError(
            f"{first} and {second} share no held-out game, so nothing can be paired: play both on the same games with slim-rl evaluate."
        )
    names = [rows["run"].iloc[0] if rows["run"].nunique() == 1 else rows["arm"].iloc[0] for rows in sides]
    one, two = names if names[0] != names[1] else map(str, (first, second))
    shared = [name for name in MEASURES if all(name in rows for rows in sides)]
    found = {name: _of_runs(sides[0], sides[1], games, name) for name in shared}
    return {"first": one, "second": two, "games": len(games), "measures": found}


def _ended(log: str | Path) -> pd.DataFrame:
    """The held-out games of a log as they were played last: `Plays.held_out` of one arm and partner."""
    rows = of_frame(load([log]).frame).held_out
    rows = rows[rows["when"] == "after"]
    if rows.empty:
        raise DataError(
            f"{log} holds no held-out games that were played after training: evaluate its model with slim-rl evaluate."
        )
    for what, key in (("arms", "arm"), ("partners", "condition")):
        if len(several := sorted(set(rows[key]))) > 1:
            raise DataError(f"{log} holds the {what} {', '.join(several)}: name a folder or file of one of them.")
    return rows


def _of_runs(first: pd.DataFrame, second: pd.DataFrame, games: Sequence[str], name: str) -> dict[str, Any]:
    a, b = (rows.pivot(index="run", columns="game", values=name)[games] for rows in (first, second))
    bounded = MEASURES[name].bounded
    over = st.BOTH if min(len(a), len(b)) > 1 else st.GAMES
    difference = st.contrast([b, a], [1.0, -1.0], 1.0 if bounded else np.inf, over)
    if len(a) == len(b) == 1:  # game by game: of a measure that some games lack, in those that both have
        paired = st.paired_comparison(a.iloc[0], b.iloc[0], bounded=bounded)
        return {"before": paired.before, "after": paired.after, **asdict(paired.difference)}
    return {"before": st.arm_mean(a).value, "after": st.arm_mean(b).value, **asdict(difference)}


def sentence_of(pair: Mapping[str, Any], named: Callable[[str], str] = words) -> str:
    """'On the same 200 games, b free less a free: questions a game +0.81 (0.64 to 0.97), reward +0.036 (0.018 to 0.055), 95% intervals
    over games.' `named`: how the two are written.
    """
    parts = [
        f"{what} {plain(row['value'], signed=True)} ({interval(row['low'], row['high'])})"
        for name, what in (("questions", "questions a game"), ("reward", "reward"))
        if known((row := pair["measures"][name])["low"])
    ]
    cells = f"{named(pair['second'])} less {named(pair['first'])}"
    told = f"{', '.join(parts)}, 95% intervals over {pair['measures']['reward']['over']}" if parts else "too few to say"
    return f"On the same {count(pair['games'], 'game')}, {cells}: {told}."
