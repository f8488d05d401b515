"""How a scripted partner judges a proposal: honestly, by what it sees and what it was told, and by nothing else.

A cell is worth what the partner is shown; else what the other player told it; else what a score is worth on average. A
plan is accepted if and only if its value reaches a fraction of that of the plan the partner would choose by the same
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from slim_rl.games.matching.env import MatchingView
from slim_rl.games.matching.generate import SCALES, VALUES
from slim_rl.games.matching.instance import UNSEEN_VALUE
from slim_rl.games.matching.optimum import Assignment, best_assignment
from slim_rl.games.matching.reading.pairing import Pair

Estimates = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a partner makes of a plan.

    Attributes:
        accepts: whether `value` reaches the fraction of `best`.
        value: the plan's estimated value, in the partner's own scale.
        best: the value of its own best plan by the same estimates.
        doubts: the plan's (reviewer, paper) pairs worth less than an unknown one.
    """

    accepts: bool
    value: float
    best: float
    doubts: tuple[Pair, ...]


def judge(view: MatchingView, plan: Assignment, told: Mapping[Pair, float], accept_fraction: float) -> Verdict:
    """Judges `plan`. `told`: values the other player stated, in that player's scale."""
    table = estimates(view, told)
    expected = int(UNSEEN_VALUE * view.scale)  # displayed values are cut to ints, and so is what they are compared with
    value = sum(table[reviewer][paper] for reviewer, paper in enumerate(plan))
    best = _best_value(table)
    doubts = tuple((reviewer, paper) for reviewer, paper in enumerate(plan) if table[reviewer][paper] < expected)
    return Verdict(value >= accept_fraction * best, value, best, doubts)


def estimates(view: MatchingView, told: Mapping[Pair, float]) -> Estimates:
    """What each cell is worth to the seat, in its own displayed scale: (n, n)."""
    factor = _conversion(view, told) if told else 1.0
    unknown = UNSEEN_VALUE * view.scale
    most = (VALUES - 1) * view.scale

    def cell(reviewer: int, paper: int, shown: int | None) -> float:
        if shown is not None:
            return float(shown)
        heard = told.get((reviewer, paper))
        return unknown if heard is None else min(heard * factor, most)

    return tuple(tuple(cell(r, p, shown) for p, shown in enumerate(row)) for r, row in enumerate(view.table))


def _conversion(view: MatchingView, told: Mapping[Pair, float]) -> float:
    """The factor from the other's displayed values to one's own; 1 if the scale is exactly 1 (scales off).

    A cell both see gives the ratio of the scales; the median over such cells is taken. Without one, the other's scale s
    is drawn from U(1, 10) and scores from U(0, 99): k values told, the largest being m, leave s a density of s^-k from
    m/99 to 10, and 1/s is put at its mean under it.
    """
    if view.scale == 1.0:
        return 1.0
    shared = [
        (shown + 0.5) / (value + 0.5)
        for (reviewer, paper), value in told.items()
        if (shown := view.table[reviewer][paper]) is not None and value > 0
    ]
    if shared:
        return median(shared)
    low, high = SCALES
    k, low = len(told), min(max(low, max(told.values()) / (VALUES - 1)), high)
    if high - low < 1e-6:
        return view.scale / high
    mean_inverse = _power_integral(k + 1, low, high) / (low * _power_integral(k, low, high))
    return view.scale * mean_inverse


def _power_integral(k: int, low: float, high: float) -> float:
    """The integral of (low / s)^k over [low, high]."""
    if k == 1:
        return low * math.log(high / low)
    return low * (1 - (low / high) ** (k - 1)) / (k - 1)


@lru_cache(maxsize=4096)
def _best_value(table: Estimates) -> float:
    return best_assignment(table)[1]
