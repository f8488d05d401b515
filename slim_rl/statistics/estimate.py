"""What every statistic here is: a number, its interval, and how many games and dialogues stand behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
DRAWS = 2000  # bootstrap draws: the Monte Carlo error of a 95% bound is about 0.4 points of coverage
FEW = "fewer than two games"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how well it is known.

    Attributes:
        value: the point estimate; NaN if there is no data.
        low, high: the 95% interval; NaN where there is none.
        n: dialogues that went in.
        clusters: games (or runs, where the interval is over runs) they belong to.
        p: two-sided p value of the null "value = 0" (of "no difference" for a comparison); NaN where none is made.
        note: why something is missing, or what the interval does not cover; empty if there is nothing to add.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int
    p: float = float("nan")
    note: str = ""
