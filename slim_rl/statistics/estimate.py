"""What every statistic here is: a number, its interval, over what that is, and how many games and dialogues stand behind it."""

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
BOTH: Over = "seeds and games"  # what another seed, on other games, is expected to show


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how well it is known.

    Attributes:
        value: the point estimate; NaN if there is no data.
        low, high: the 95% interval; NaN where there is none.
        n: dialogues that went in, or means of a run's dialogues on a game.
        clusters: games they belong to.
        p: two-sided p value of the null "value = 0" (of "no difference" for a comparison); NaN where none is made.
        note: why something is missing, or what the interval does not cover; empty if there is nothing to add.
        over: what the interval and p are over: what they would allow for if it were drawn anew.
        se, df: the standard error and its degrees of freedom.
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
