"""Evaluated policies compared on the games that both played.

The invariant: a difference is one cell's mean less another's over the same games, paired game by game, and two cells are compared
only if at most one thing differs between them: the policy, its partner, or the mode of play. Of the two the cell that was named first
is the baseline, whatever came out. Pairs of policies that play freely come before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from slim_rl import statistics as st
from slim_rl.dialogue.measures import shown_in
from slim_rl.formats import count, interval, known, plain, words

FLIPS = 1999  # of signs, for each p: there may be many pairs


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy, partner and mode. `games`: its measures, one row a dialogue, indexed by game."""

    name: str
    policy: str
    partner: str
    mode: str
    games: pd.DataFrame

    def differs(self, other: Cell) -> int:
        """In how many of policy, partner and mode."""
        return sum(getattr(self, name) != getattr(other, name) for name in ("policy", "partner", "mode"))


def cells_of(frame: pd.DataFrame) -> list[Cell]:
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
            cells.append(Cell(str(arm), first["policy"], first["partner"], usual(rows["mode"]), games))
    return cells


def usual(modes: Iterable[str]) -> str:
    """The mode of a cell: where games offer fewer questions than `forced:K` asks for, that of most games."""
    return Counter(modes).most_common(1)[0][0]


def compare(cells: Sequence[Cell], seed: int = 0) -> list[dict[str, Any]]:
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


def _differences(a: Cell, b: Cell, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for measure in shown_in("first screen"):
        one, two = (cell.games[measure.name].astype(float) for cell in (a, b))
        test = st.paired_comparison(one, two, seed=seed, resamples=FLIPS, bounded=measure.bounded)
        yield measure.name, {"before": test.before, "after": test.after, **asdict(test.difference)}


def sentence_of(pair: Mapping[str, Any]) -> str:
    """'On the same 200 games, b free less a free: questions a game +0.81 (0.64 to 0.97), reward +0.036 (0.018 to 0.055).'"""
    parts = [
        f"{what} {plain(row['value'], signed=True)} ({interval(row['low'], row['high'])})"
        for name, what in (("questions", "questions a game"), ("reward", "reward"))
        if known((row := pair["measures"][name])["low"])
    ]
    cells = f"{words(pair['second'])} less {words(pair['first'])}"
    return f"On the same {count(pair['games'], 'game')}, {cells}: {', '.join(parts)}."
