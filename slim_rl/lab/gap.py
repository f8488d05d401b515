"""Gap of a dialogue's net reward to the ideal asker's, decomposed into four parts.

The ideal asker asks the best question, one at a time, until the next one's expected gain is below its cost c (`frontier`). Let k be the
questions of the dialogue and m their mean over all dialogues of the same run, checkpoint and partner. Let N(k) be the ideal asker's net
reward in this game with k questions, and S(m) its net reward with m questions on average, asked in the games of the highest expected
gain. Then

    lost              ideal - (reward - c k)                         gap, the exact sum of
    lost_by_number    ideal - S(m)                                   count: too few or too many questions on average
    lost_by_stopping  S(m) - N(k)                                    stopping: as many questions, but in other games
    lost_by_choice    N(k) - (best plan given its knowledge - c k)   choice: as many in this game, but not the best ones
    lost_by_use       best plan given its knowledge - reward         plan: not the best plan it could make, or not agreed

in each dialogue, and therefore in every mean. A part may be negative: by chance in one game, and on average if a message asks about
several pairs, which counts as one question, while the ideal asker asks about one.

The ideal asker looks one question ahead. On 2 × 2 boards, where dynamic programming finds the optimum, its net reward is 0.006 to 0.011
below it (tests/lab/test_gap.py). On larger boards the optimum is infeasible.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slim_rl.analysis.load import Log
from slim_rl.lab.askers import Askers, played_by, question_costs
from slim_rl.lab.frontier import Floats, Frontier
from slim_rl.lab.measures import LOSSES

HEADING = "Gap to the ideal asker"


def losses(
    ideal: Frontier, questions: ArrayLike, best_known: ArrayLike, reward: ArrayLike, price: ArrayLike
) -> dict[str, Floats]:
    """Returns the gap and its parts for dialogues of one policy, by name, each of shape (dialogues,).

    Args:
        ideal: frontier of the ideal asker in each dialogue's game.
        questions, best_known, reward: measures, shape (dialogues,).
        price: question cost, a scalar or shape (dialogues,).
    """
    k, known, rewards, price = (np.asarray(numbers, dtype=float) for numbers in (questions, best_known, reward, price))
    if not len(k):
        return {name: np.empty(0) for name in LOSSES}
    stopped = ideal.net(ideal.stops(price), price)
    same_mean, same_number = ideal.net_allocated(float(k.mean()), price), ideal.net(k, price)
    return {
        "lost": stopped - (rewards - price * k),
        "lost_by_number": stopped - same_mean,
        "lost_by_stopping": same_mean - same_number,
        "lost_by_choice": same_number - (known - price * k),
        "lost_by_use": known - rewards,
    }


def with_gap(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], askers: Askers) -> pd.DataFrame:
    """Returns completed dialogues of `log.frame` with their gap and its parts; NaN if the game has no ideal asker.

    Args:
        prices: question cost per arm, as for `question_costs`.
    """
    out = rows.assign(**dict.fromkeys(LOSSES, np.nan))
    for part, ideal in played_by(log, rows, askers):
        price, forced = question_costs(part, prices), part["questions_forced"]
        gap = losses(ideal, part["questions"] + forced, part["best_known"], part["reward"], price)
        for name in ("lost", "lost_by_number"):
            gap[name] = gap[name] - price * forced  # forced questions are asked, and cost the policy nothing
        out.loc[part.index, list(gap)] = np.column_stack(list(gap.values()))
    return out
