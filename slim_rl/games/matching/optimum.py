"""The best assignment of a table of values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Assignment = tuple[int, ...]  # assignment[reviewer] = paper
_TIES_UP_TO = 10  # larger boards have too many sets of papers, and next to no ties


def best_assignment(values: ArrayLike) -> tuple[Assignment, float]:
    """Returns the one-to-one assignment of rows to columns with the highest sum, and that sum. `values`: (n, n).

    Ties go to whichever SciPy's solver finds first, as in DialOp.
    """
    from scipy.optimize import linear_sum_assignment  # a command that solves nothing starts without its half second

    table = np.asarray(values, dtype=float)
    rows, columns = linear_sum_assignment(-table)  # negated like DialOp: ties must fall the same way
    return tuple(int(c) for c in columns), float(table[rows, columns].sum())


def total(values: ArrayLike, assignment: Sequence[int]) -> float:
    """Returns the sum of values[r][assignment[r]]."""
    table = np.asarray(values, dtype=float)
    return float(table[np.arange(len(assignment)), list(assignment)].sum())


def score_of_best(believed: ArrayLike, table: ArrayLike) -> NDArray[np.float64]:
    """Returns the true score, by `table`, of the best assignment by `believed`: the mean over all that tie for best.

    Both are (games, n, n); returns (games,). By dynamic programming over sets of papers, reviewer by reviewer: the highest sum of
    each set, how many assignments reach it, and their summed scores. Beyond n = 10 it is the one the solver finds first.
    """
    values, truth = np.asarray(believed, dtype=float), np.asarray(table, dtype=float)
    games, n, _ = values.shape
    if n > _TIES_UP_TO:
        return np.array([total(t, best_assignment(v)[0]) for v, t in zip(values, truth, strict=True)])
    sets = np.arange(2**n)
    size = (sets[:, None] >> np.arange(n) & 1).sum(axis=1)
    best = np.full((games, 2**n), -np.inf)
    best[:, 0] = 0.0
    count = (best == 0.0).astype(float)
    score = np.zeros_like(best)
    for reviewer in range(n):
        new, ways, reached = np.full_like(best, -np.inf), np.zeros_like(best), np.zeros_like(best)
        for paper in range(n):
            free = sets[(size == reviewer) & (sets >> paper & 1 == 0)]
            taken = free | 1 << paper
            value = best[:, free] + values[:, reviewer, paper, None]
            gained = score[:, free] + count[:, free] * truth[:, reviewer, paper, None]
            better, as_good = value > new[:, taken], value == new[:, taken]
            new[:, taken] = np.where(better, value, new[:, taken])
            ways[:, taken] = np.where(better, 0.0, ways[:, taken]) + np.where(better | as_good, count[:, free], 0.0)
            reached[:, taken] = np.where(better, 0.0, reached[:, taken]) + np.where(better | as_good, gained, 0.0)
        best, count, score = new, ways, reached
    return np.asarray(score[:, -1] / count[:, -1])
