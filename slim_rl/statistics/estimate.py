"""Estimate: a number, its interval, what the interval is over, and the games and dialogues behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
FEW = "fewer than two games"

Floats = NDArray[np.float64]
Over = Literal["games", "seeds", "seeds and games"]
GAMES: Over = "games"  # given these runs
SEEDS: Over = "seeds"
BOTH: Over = "seeds and games"  # as if another seed played other games


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty.

    Attributes:
        value: point estimate; NaN without data.
        low, high: ends of the 95% interval; NaN if it cannot be estimated.
        n: number of dialogues, or of (run, game) means.
        clusters: number of games they belong to.
        p: two-sided p value of "value = 0" (of "no difference" for a comparison); NaN if no test was made.
        note: reason for a missing interval; "" if nothing is missing.
        over: unit that the interval and p treat as drawn at random.
        se, df: standard error and its degrees of freedom.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int
    p: float = float("nan")
    note: str = ""
    over: Over = GAMES
    se: float = float("nan")
    df: float = float("nan")
