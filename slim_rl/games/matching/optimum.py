"""The best assignment of a table of values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

Assignment = tuple[int, ...]  # assignment[reviewer] = paper


def best_assignment(values: ArrayLike) -> tuple[Assignment, float]:
    """The one-to-one assignment of rows to columns with the highest sum, and that sum. `values`: (n, n).

    Ties go to whichever SciPy's solver finds first, as in DialOp.
    """
    table = np.asarray(values, dtype=float)
    rows, columns = linear_sum_assignment(-table)  # negated like DialOp: ties must fall the same way
    return tuple(int(c) for c in columns), float(table[rows, columns].sum())


def total(values: ArrayLike, assignment: Sequence[int]) -> float:
    """The sum of values[r][assignment[r]]."""
    table = np.asarray(values, dtype=float)
    return float(table[np.arange(len(assignment)), list(assignment)].sum())
