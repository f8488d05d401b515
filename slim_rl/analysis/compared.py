"""Comparisons on the games that both sides played: cells of an evaluation in pairs, or two runs.

Invariants:
    A difference is one cell's mean minus another's on the same games, paired by game.
    Two cells are compared only if at most one of policy, partner and mode differs.
    The cell named first is the baseline, whatever the result.
    Pairs of policies in free play come first.
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

FLIPS = 1999  # sign flips per p value; few, since there may be many pairs


@dataclass(frozen=True, slots=True)
class PlayedCell:
    """Cell of an evaluation; `games` has its measures, one row per dialogue, indexed by game."""

    name: str
    policy: str
    partner: str
    mode: str
    games: pd.DataFrame

    def differs(self, other: PlayedCell) -> int:
        """Returns how many of policy, partner and mode differ."""
        return sum(getattr(self, name) != getattr(other, name) for name in ("policy", "partner", "mode"))


def cells_of(frame: pd.DataFrame) -> list[PlayedCell]:
    """Returns the cells of an evaluation, one per arm, from a frame of `load`.

    Returns none if the frame has training dialogues. Skips arms with several checkpoints, policies or partners.
    """
    if (frame["phase"] == "train").any():
        return []
    cells = []
    for arm, rows in frame[~frame["failed"]].groupby("arm", observed=True):
        if (rows[["policy", "partner", "phase", "step"]].nunique(dropna=False) == 1).all():
            first = rows.iloc[0]
            games = rows.set_index(rows["cluster"].astype(str))
            cells.append(PlayedCell(str(arm), first["policy"], first["partner"], main_mode(rows["mode"]), games))
    return cells


def main_mode(modes: Iterable[str]) -> str:
    """Returns the commonest mode; games with fewer questions than K in `forced:K` have another."""
    return Counter(modes).most_common(1)[0][0]


def compare(cells: Sequence[PlayedCell], seed: int = 0) -> list[dict[str, Any]]:
    """Returns one row per pair of cells that share at least two games: the later cell minus the earlier.

    Keys:
        first, second: names of the baseline and of the other cell.
        games: number of games both played.
        measures: per measure `before` (the first's mean), `after` (the second's), and the difference `value` with `low`, `high`, `p`.
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
    """Returns a row of `compare` with every measure: the second log minus the first, on held-out games after training.

    Intervals are over games, or over seeds and games if both logs have several runs.

    Raises:
        DataError: a log has no held-out game, or several arms or partners, or the logs share no game.
    """
    sides = [_ended(log) for log in (first, second)]
    games = sorted(set(sides[0]["game"]) & set(sides[1]["game"]))
    if not games:
        raise DataError(
            f"{first} and {second} share no held-out game. Play both on the same games with slim-rl evaluate."
        )
    names = [rows["run"].iloc[0] if rows["run"].nunique() == 1 else rows["arm"].iloc[0] for rows in sides]
    one, two = names if names[0] != names[1] else map(str, (first, second))
    shared = [name for name in MEASURES if all(name in rows for rows in sides)]
    differences = {name: _difference_of_runs(sides[0], sides[1], games, name) for name in shared}
    return {"first": one, "second": two, "games": len(games), "measures": differences}


def _ended(log: str | Path) -> pd.DataFrame:
    """Returns `Plays.held_out` of a log after training, of one arm and partner."""
    rows = of_frame(load([log]).frame).held_out
    rows = rows[rows["when"] == "after"]
    if rows.empty:
        raise DataError(f"{log} has no held-out games played after training. Evaluate its model with slim-rl evaluate.")
    for what, key in (("arms", "arm"), ("partners", "condition")):
        if len(several := sorted(set(rows[key]))) > 1:
            raise DataError(f"{log} has the {what} {', '.join(several)}. Name a folder or file of one of them.")
    return rows


def _difference_of_runs(first: pd.DataFrame, second: pd.DataFrame, games: Sequence[str], name: str) -> dict[str, Any]:
    a, b = (rows.pivot(index="run", columns="game", values=name)[games] for rows in (first, second))
    bounded = MEASURES[name].bounded
    over = st.BOTH if min(len(a), len(b)) > 1 else st.GAMES
    difference = st.contrast([b, a], [1.0, -1.0], 1.0 if bounded else np.inf, over)
    if len(a) == len(b) == 1:  # paired: on the games in which both have the measure
        paired = st.paired_comparison(a.iloc[0], b.iloc[0], bounded=bounded)
        return {"before": paired.before, "after": paired.after, **asdict(paired.difference)}
    return {"before": st.arm_mean(a).value, "after": st.arm_mean(b).value, **asdict(difference)}


def sentence_of(pair: Mapping[str, Any], named: Callable[[str], str] = words) -> str:
    """Returns a sentence on a pair of cells.

    Example: 'On the same 200 games, b free minus a free: questions per game +0.81 (0.64 to 0.97), reward ...'.

    Args:
        named: formats the names of the two sides.
    """
    parts = [
        f"{what} {plain(row['value'], signed=True)} ({interval(row['low'], row['high'])})"
        for name, what in (("questions", "questions per game"), ("reward", "reward"))
        if known((row := pair["measures"][name])["low"])
    ]
    cells = f"{named(pair['second'])} minus {named(pair['first'])}"
    result = (
        f"{', '.join(parts)}, 95% intervals over {pair['measures']['reward']['over']}" if parts else "too few games"
    )
    return f"On the same {count(pair['games'], 'game')}, {cells}: {result}."
