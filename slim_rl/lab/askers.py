"""Question costs, and the net rewards of simulated askers, ideal and random, in the games of a log (`frontier`).

Rewards of the random asker are means over `DRAWS` seeds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.environment import game_of
from slim_rl.lab.frontier import MOST, Floats, Frontier
from slim_rl.lab.measures import NET_REWARD
from slim_rl.measured import measured
from slim_rl.statistics import clustered_mean

IDEAL, RANDOM = "greedy", "random"  # names of the ideal and the random asker among a game's frontiers
DRAWS = 8  # seeds of the random asker
_TOGETHER = ["arm", "run", "policy", "phase", "step", "partner", "mode"]


def question_costs(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.Series[float]:
    """Returns the question cost of each dialogue: its log's, else that of its arm in `prices`, else 0."""
    defaults = rows["arm"].map(prices).astype(float).fillna(0.0)
    return rows["price"].fillna(defaults)


def with_net_reward(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """Returns the dialogues with a column of their net reward; `prices` as for `question_costs`."""
    costs = question_costs(rows, prices) * rows["questions"].fillna(0.0)
    return rows.assign(**{NET_REWARD.name: rows["reward"] - costs})


class Askers:
    """Cache of the simulated askers' frontiers: each game is solved once.

    Args:
        most: maximum number of questions per game.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._rows: dict[Hashable, tuple[Floats, Floats]] = {}

    def frontier(self, log: Log, rows: pd.DataFrame, asker: str = IDEAL) -> Frontier | None:
        """Returns an asker's frontier in the games of these dialogues of one environment; None if it has no such asker."""
        environment = str(rows["environment"].iloc[0])
        keys = [(asker, environment, str(row.cluster), row.seat) for row in rows.itertuples()]
        new = {key: row for key, row in zip(keys, rows.itertuples(), strict=True) if key not in self._rows}
        if new:
            states = [(read_dialogue(log, row)["game_state"], row.seat) for row in new.values()]
            solved = self._solve(environment, states, asker)
            if solved is None:
                return None
            self._rows |= zip(new, zip(solved.rewards, solved.expected_gain, strict=True), strict=True)
        rewards, expected_gain = zip(*(self._rows[key] for key in keys), strict=True)
        return Frontier(np.stack(rewards), np.stack(expected_gain))

    def _solve(self, environment: str, states: Sequence[tuple[Any, int]], asker: str) -> Frontier | None:
        """Returns the frontier; of the random asker the mean over `DRAWS` seeds."""
        draws = range(1 if asker == IDEAL else DRAWS)
        curves = [measured(game_of(environment)).frontier(states, self.most, seed).get(asker) for seed in draws]
        known = [curve for curve in curves if curve is not None and len(curve[0]) == len(states)]
        return Frontier(*np.mean(known, axis=0)) if len(known) == len(draws) else None


def played_by(log: Log, rows: pd.DataFrame, askers: Askers) -> Iterator[tuple[pd.DataFrame, Frontier]]:
    """Yields the dialogues of each policy, checkpoint and partner, with the ideal asker's frontier in their games.

    Skips games without such an asker, or without a measure of questions.
    """
    rows = rows[rows["questions"].notna()]
    for _, part in rows.groupby(["environment", *_TOGETHER], observed=True, dropna=False):
        if (frontier := askers.frontier(log, part)) is not None:
            yield part, frontier


def simulated(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], askers: Askers) -> pd.DataFrame:
    """Returns net rewards of simulated askers in the games of these dialogues of one environment, with intervals over games.

    Empty if the game has no askers. One row per asker ("random", "greedy") and fixed number of questions, and one for "ideal", which
    stops by itself. Columns: asker, questions, net_reward, low, high, price (mean), games.
    """
    once = rows.drop_duplicates(["cluster", "seat"])
    price = question_costs(once, prices).to_numpy(float)
    results = []

    def add(name: str, curve: Frontier, questions: ArrayLike) -> None:
        net = clustered_mean(curve.net(questions, price), once["cluster"].astype(str), NET_REWARD.within)
        numbers = {"net_reward": net.value, "low": net.low, "high": net.high, "price": price.mean(), "games": len(once)}
        results.append({"asker": name, "questions": float(np.asarray(questions, float).mean()), **numbers})

    for name in (RANDOM, IDEAL):
        if len(once) and (curve := askers.frontier(log, once, name)) is not None:
            for number in range(curve.rewards.shape[1]):
                add(name, curve, number)
            if name == IDEAL:
                add("ideal", curve, curve.stops(price))
    return pd.DataFrame(results)
