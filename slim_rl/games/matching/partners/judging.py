"""Judgement of proposals by a scripted partner, from its own table only.

A player's claims cannot move the judgement, so lying about scores earns nothing.

A cell is worth what the partner sees, or else the mean score: it cannot check claims about cells that it does not see. A plan is accepted
if and only if its value reaches a fraction of the partner's own best plan. On 8x8 boards dealt as in DialOp, 0.75 accepts every plan that
is best for both tables together.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.state import UNSEEN_VALUE, Assignment, MatchingView, best_assignment

Estimates = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a plan.

    Attributes:
        accepts: whether `value` reaches the fraction of `best`.
        value: the plan's estimated value, in the partner's own scale.
        best: the value of its own best plan by the same estimates.
    """

    accepts: bool
    value: float
    best: float


def judge(view: MatchingView, plan: Assignment, accept_fraction: float) -> Verdict:
    """Judges `plan` as the seat of `view`."""
    table = estimates(view)
    value = sum(table[reviewer][paper] for reviewer, paper in enumerate(plan))
    best = _best_value(table)
    wanted = accept_fraction * best
    # Sums of unknown cells' worth differ in their last digit by the order in which they are added.
    return Verdict(value >= wanted or math.isclose(value, wanted, rel_tol=1e-9), value, best)


def estimates(view: MatchingView) -> Estimates:
    """Returns the worth of each cell to the seat, in its own displayed scale: (n, n)."""
    unknown = UNSEEN_VALUE * view.scale
    return tuple(tuple(unknown if shown is None else float(shown) for shown in row) for row in view.table)


@lru_cache(maxsize=4096)
def _best_value(table: Estimates) -> float:
    return best_assignment(table)[1]
