"""The ledger of asking: how far a dialogue ended below an ideal asker, net of a price a question, and where that was lost.

The ideal asker asks the best question, one at a time, until the next is expected to add less than its price (`frontier`). With N(k) what
it would have earned in this game with k questions, k the questions of the dialogue and m their mean over all dialogues of the same run,
checkpoint and partner, and S(m) what it would have earned with m questions on average, asked where they are expected to add the most,

    lost              ideal - (reward - price k)                    is exactly the sum of
    ... by number     ideal - S(m)                                  it asks, on average, too few or too many
    ... by stopping   S(m) - N(k)                                   as many in all, asked where they matter
    ... by choice     N(k) - (best plan by what it knew - price k)  as many in this game, but the best ones
    ... by use        best plan by what it knew - reward            its plan was not the best it could make, or was not agreed

in each dialogue, and so in every mean. A part may be below zero: by luck in one game; and on average where a message asks for several
pairs, which count as one question, where the ideal asks for one. What is called ideal looks one question ahead: on 2 × 2 boards, where the
optimum can be had by dynamic programming, it earns 0.006 to 0.011 less (`tests/analysis/test_ledger.py`). On larger ones it cannot be had:
what is known there are numbers, too many to go through.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.dialogue.measures import MEASURES, Measure
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import game_of
from slim_rl.frontier import MOST, Floats, Frontier
from slim_rl.measured import measured
from slim_rl.statistics import clustered_mean

IDEAL, RANDOM = "greedy", "random"  # the ideal asker, and one who asks anything, among a game's frontiers
DRAWS = 8  # of what a random asker asks, that are averaged
_LOST = replace(MEASURES["reward"], better="down", role="secondary", bounded=False, signed=True)
LOSSES: dict[str, Measure] = {
    name: replace(_LOST, name=name, title=title, short=short)
    for name, title, short in (
        ("lost", "lost to the ideal asker", "lost"),
        ("lost_by_number", "lost by how many questions", "by how many"),
        ("lost_by_stopping", "lost by when it stopped", "by when"),
        ("lost_by_choice", "lost by which questions", "by which"),
        ("lost_by_use", "lost by its plan", "by its plan"),
    )
}
OVER_RANDOM = replace(
    MEASURES["reward"],
    name="over_random",
    title="net reward above that of the best fixed number of random questions",
    short="above random questions",
    role="secondary",
    bounded=False,
    signed=True,
)
CAPTION = (
    "The ledger of asking: what was earned less than an ideal asker earns, and where it was lost. The last four columns sum to the first; "
    "shares of the best score, net of the price a question."
)
_TOGETHER = ["arm", "run", "policy", "phase", "step", "partner", "mode"]


def losses(
    ideal: Frontier, questions: ArrayLike, best_known: ArrayLike, reward: ArrayLike, price: ArrayLike
) -> dict[str, Floats]:
    """The ledger of dialogues of one policy: by name, (dialogues,).

    Args:
        ideal: of each dialogue's game.
        questions, best_known, reward: (dialogues,), as measured.
        price: of a question, one for all or one a dialogue.
    """
    k, known, earned, price = (np.asarray(numbers, dtype=float) for numbers in (questions, best_known, reward, price))
    if not len(k):
        return {name: np.empty(0) for name in LOSSES}
    stopped = ideal.net(ideal.stops(price), price)
    spent, own = ideal.spent(float(k.mean()), price), ideal.net(k, price)
    return {
        "lost": stopped - (earned - price * k),
        "lost_by_number": stopped - spent,
        "lost_by_stopping": spent - own,
        "lost_by_choice": own - (known - price * k),
        "lost_by_use": known - earned,
    }


class Ideals:
    """The ideal asker in every game met so far: each is solved once, however many dialogues are of it. And the random one.

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
            self._rows |= zip(new, zip(found.rewards, found.hoped, strict=True), strict=True)
        rewards, hoped = zip(*(self._rows[key] for key in keys), strict=True)
        return Frontier(np.stack(rewards), np.stack(hoped))

    def _solved(self, environment: str, states: Sequence[tuple[Any, int]], asker: str) -> Frontier | None:
        """By what it asks on average, where that is drawn."""
        draws = range(1 if asker == IDEAL else DRAWS)
        found = [measured(game_of(environment)).frontier(states, self.most, seed).get(asker) for seed in draws]
        known = [curve for curve in found if curve is not None and len(curve.rewards) == len(states)]
        if len(known) < len(draws):
            return None
        return Frontier(*(np.mean([getattr(each, name) for each in known], axis=0) for name in ("rewards", "hoped")))


def paid(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.Series[float]:
    """What a question cost in each dialogue: what its log says, else what `prices` says of its arm, else nothing."""
    named = rows["arm"].map(prices).astype(float).fillna(0.0)
    return rows["price"].fillna(named) if "price" in rows else named


def entered(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], ideals: Ideals) -> pd.DataFrame:
    """Dialogues of `log.frame` that did not fail, with their ledger: NaN where their game has no ideal asker. `prices`: see `paid`."""
    out = rows.assign(**dict.fromkeys(LOSSES, np.nan))
    for part, ideal in played_by(log, rows, ideals):
        ledger = losses(ideal, part["questions"], part["best_known"], part["reward"], paid(part, prices))
        out.loc[part.index, list(ledger)] = np.column_stack(list(ledger.values()))
    return out


def over_random(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], ideals: Ideals) -> pd.Series[float]:
    """What dialogues of `log.frame` that did not fail earned net of the price, less what random questions, as many in each game as is best
    at that price, would have earned in the same games. NaN where the game has no random asker. `prices`: see `paid`.
    """
    out = pd.Series(np.nan, rows.index)
    for part, random in played_by(log, rows, ideals, RANDOM):
        price = paid(part, prices).to_numpy(float)
        for each in np.unique(price):
            mine = price == each
            alike = Frontier(random.rewards[mine], random.hoped[mine])
            net = part["reward"][mine] - each * part["questions"][mine]
            out[part.index[mine]] = net - alike.net(alike.best_number(each), each)
    return out


def played_by(
    log: Log, rows: pd.DataFrame, ideals: Ideals, asker: str = IDEAL
) -> Iterator[tuple[pd.DataFrame, Frontier]]:
    """The dialogues of each policy, checkpoint and partner, and what an asker reaches in their games; but for games without such an asker."""
    for _, part in rows.groupby(["environment", *_TOGETHER], observed=True, dropna=False):
        if (found := _reached(log, part, ideals, asker)) is not None:
            yield part, found


def askers(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], ideals: Ideals) -> pd.DataFrame:
    """What askers on paper earn in the games of these dialogues of one environment, net of the price, with intervals over games; empty for a game without
    any. A row an asker ("random", "greedy") and number of questions, the same in every game, and one of "ideal", which stops
    by itself: asker, questions, net_reward, low, high, price (its mean), games.
    """
    once = rows.drop_duplicates(["cluster", "seat"])
    price = paid(once, prices).to_numpy(float)
    found = []

    def enter(name: str, curve: Frontier, questions: ArrayLike) -> None:
        net = clustered_mean(curve.net(questions, price), once["cluster"].astype(str))
        numbers = {"net_reward": net.value, "low": net.low, "high": net.high, "price": price.mean(), "games": len(once)}
        found.append({"asker": name, "questions": float(np.asarray(questions, float).mean()), **numbers})

    for name in (RANDOM, IDEAL):
        if len(once) and (curve := _reached(log, once, ideals, name)) is not None:
            for number in range(curve.rewards.shape[1]):
                enter(name, curve, number)
            if name == IDEAL:
                enter("ideal", curve, curve.stops(price))
    return pd.DataFrame(found)


def _reached(log: Log, rows: pd.DataFrame, ideals: Ideals, asker: str) -> Frontier | None:
    """What an asker reaches in the games of these dialogues of one environment."""
    places = list(rows[["file", "offset"]].itertuples())
    games = list(zip(rows["cluster"].astype(str), rows["seat"], strict=True))
    environment = str(rows["environment"].iloc[0])
    return ideals.of(environment, games, lambda i: read_dialogue(log, places[i])["game_state"], asker)


def of_dialogues(
    dialogues: Sequence[Dialogue], measured_as: pd.DataFrame, price: float, ideals: Ideals
) -> dict[str, Floats]:
    """The ledger of dialogues of one policy that did not fail, of which `measured_as` has the measures. Empty without an ideal asker.
    `price` holds where a dialogue does not say its own.
    """
    if not dialogues:
        return {}
    games = [(dialogue.game_id, dialogue.seat) for dialogue in dialogues]
    ideal = ideals.of(dialogues[0].environment, games, lambda i: dialogues[i].game_state)
    if ideal is None:
        return {}
    prices = [price if dialogue.price is None else dialogue.price for dialogue in dialogues]
    return losses(ideal, measured_as["questions"], measured_as["best_known"], measured_as["reward"], prices)
