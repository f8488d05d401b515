"""Askers on paper: what the ideal and the random asker earn in the games of a log, with every number of questions (`frontier`).

The random one's numbers are means over several draws of what it asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.analysis.plays import COMPARED
from slim_rl.environment import game_of
from slim_rl.lab.frontier import MOST, Floats, Frontier
from slim_rl.lab.net_reward import NET_REWARD, paid
from slim_rl.measured import measured
from slim_rl.statistics import clustered_mean

IDEAL, RANDOM = "greedy", "random"  # the ideal asker, and one who asks anything, among a game's frontiers
DRAWS = 8  # of what a random asker asks, that are averaged
OVER_RANDOM = replace(
    NET_REWARD,
    name="over_random",
    title="net reward above that of the best fixed number of random questions",
    short="above random questions",
    role="secondary",
    ceiling=math.inf,
)
COMPARED[OVER_RANDOM.name] = OVER_RANDOM
_TOGETHER = ["arm", "run", "policy", "phase", "step", "partner", "mode"]


class Askers:
    """The ideal asker, and the random one, in every game met so far: each is solved once, however many dialogues are of it.

    Args:
        most: questions that the game allows.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._rows: dict[Hashable, tuple[Floats, Floats]] = {}

    def of(
        self, environment: str, games: Sequence[tuple[str, int]], state: Callable[[int], Any], asker: str = IDEAL
    ) -> Frontier | None:
        """Of these games, each a name and the policy's seat; `state(i)` is the i-th. None if the game has no such asker."""
        keys = [(asker, environment, *game) for game in games]
        new = {key: i for i, key in enumerate(keys) if key not in self._rows}
        if new:
            found = self._solved(environment, [(state(i), key[-1]) for key, i in new.items()], asker)
            if found is None:
                return None
            self._rows |= zip(new, zip(found.rewards, found.expected_gain, strict=True), strict=True)
        rewards, expected_gain = zip(*(self._rows[key] for key in keys), strict=True)
        return Frontier(np.stack(rewards), np.stack(expected_gain))

    def _solved(self, environment: str, states: Sequence[tuple[Any, int]], asker: str) -> Frontier | None:
        """By what it asks on average, where that is drawn."""
        draws = range(1 if asker == IDEAL else DRAWS)
        found = [measured(game_of(environment)).frontier(states, self.most, seed).get(asker) for seed in draws]
        known = [Frontier(*curve) for curve in found if curve is not None and len(curve[0]) == len(states)]
        if len(known) < len(draws):
            return None
        return Frontier(
            *(np.mean([getattr(each, name) for each in known], axis=0) for name in ("rewards", "expected_gain"))
        )


def over_random(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], askers: Askers) -> pd.Series[float]:
    """What dialogues of `log.frame` that did not fail earned net of the price, less what random questions, as many in each game as is best
    at that price, would have earned in the same games. NaN where the game has no random asker. `prices`: see `paid`.
    """
    out = pd.Series(np.nan, rows.index)
    for part, random in played_by(log, rows, askers, RANDOM):
        price = paid(part, prices).to_numpy(float)
        for each in np.unique(price):
            mine = price == each
            alike = Frontier(random.rewards[mine], random.expected_gain[mine])
            net = part["reward"][mine] - each * part["questions"][mine]
            out[part.index[mine]] = net - alike.net(alike.best_number(each), each)
    return out


def played_by(
    log: Log, rows: pd.DataFrame, askers: Askers, asker: str = IDEAL
) -> Iterator[tuple[pd.DataFrame, Frontier]]:
    """The dialogues of each policy, checkpoint and partner, and what an asker reaches in their games; but for games without such an asker."""
    rows = rows[rows["questions"].notna()]  # a game that does not measure them has no such comparison
    for _, part in rows.groupby(["environment", *_TOGETHER], observed=True, dropna=False):
        if (found := _reached(log, part, askers, asker)) is not None:
            yield part, found


def on_paper(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], askers: Askers) -> pd.DataFrame:
    """What askers on paper earn in the games of these dialogues of one environment, net of the price, with intervals over games; empty for a game without
    any. A row an asker ("random", "greedy") and number of questions, the same in every game, and one of "ideal", which stops
    by itself: asker, questions, net_reward, low, high, price (its mean), games.
    """
    once = rows.drop_duplicates(["cluster", "seat"])
    price = paid(once, prices).to_numpy(float)
    found = []

    def enter(name: str, curve: Frontier, questions: ArrayLike) -> None:
        net = clustered_mean(curve.net(questions, price), once["cluster"].astype(str), ceiling=1.0)
        numbers = {"net_reward": net.value, "low": net.low, "high": net.high, "price": price.mean(), "games": len(once)}
        found.append({"asker": name, "questions": float(np.asarray(questions, float).mean()), **numbers})

    for name in (RANDOM, IDEAL):
        if len(once) and (curve := _reached(log, once, askers, name)) is not None:
            for number in range(curve.rewards.shape[1]):
                enter(name, curve, number)
            if name == IDEAL:
                enter("ideal", curve, curve.stops(price))
    return pd.DataFrame(found)


def _reached(log: Log, rows: pd.DataFrame, askers: Askers, asker: str) -> Frontier | None:
    """What an asker reaches in the games of these dialogues of one environment."""
    places = list(rows[["file", "offset"]].itertuples())
    games = list(zip(rows["cluster"].astype(str), rows["seat"], strict=True))
    environment = str(rows["environment"].iloc[0])
    return askers.of(environment, games, lambda i: read_dialogue(log, places[i])["game_state"], asker)
