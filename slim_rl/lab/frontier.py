"""What an asker reaches question by question, game by game, and what that is worth at a price a question.

    net reward after k questions = reward of the plan that is best by then, less k times the price

A frontier is a game's own (`MeasuredEnvironment.frontier`); what follows from it is the same for every game.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST = 64  # questions that an asker is followed for, where nothing else bounds them
Floats = NDArray[np.float64]


class Frontier(NamedTuple):
    """One asker's.

    Attributes:
        rewards: (games, most + 1), the reward after 0, 1, ..., `most` questions.
        expected_gain: (games, most + 1), what the next question is then expected to add, by what the asker knows; -inf where nothing is left to ask.
    """

    rewards: Floats
    expected_gain: Floats

    def at(self, questions: ArrayLike) -> Floats:
        """The rewards after so many questions, one number a game or one for all: (games,). Between whole numbers of questions on the line
        that joins them; beyond the last what the last reached.
        """
        k = np.minimum(
            np.broadcast_to(np.asarray(questions, dtype=float), len(self.rewards)), self.rewards.shape[1] - 1
        )
        low = np.floor(k).astype(int)
        high = np.ceil(k).astype(int)
        games = np.arange(len(k))
        return self.rewards[games, low] + (k - low) * (self.rewards[games, high] - self.rewards[games, low])

    def net(self, questions: ArrayLike, price: ArrayLike) -> Floats:
        """The net reward after so many questions: (games,). Here and below a price is one for all games, or one a game."""
        return self.at(questions) - np.asarray(price) * np.asarray(questions, dtype=float)

    def stops(self, price: ArrayLike) -> NDArray[np.intp]:
        """How many questions are asked by who stops, in each game, once the next is expected to add less than its price: (games,)."""
        enough = self.expected_gain < np.reshape(price, (-1, 1))
        enough[:, -1] = True
        return enough.argmax(axis=1)

    def spent(self, questions: float, price: ArrayLike) -> Floats:
        """The net reward of who asks so many questions on average, where the next is expected to add the most, whichever game that is:
        (games,). It stops as if a question cost what brings about that average, drawing lots between the two nearest such costs; as
        much more in one game than in another as it does cost more.
        """
        prices = np.broadcast_to(np.asarray(price, dtype=float), len(self.rewards))
        more = prices - prices[:1]
        expected_gain = self.expected_gain - more[:, None]
        costs = np.concatenate([[np.inf], np.unique(expected_gain[np.isfinite(expected_gain)])[::-1]])
        first, last = 0, len(costs) - 1  # asks nothing, asks all there is
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if self.stops(costs[middle] + more).mean() <= questions else (first, middle)
        few, many = self.stops(costs[first] + more), self.stops(costs[last] + more)
        lots = (questions - few.mean()) / (many.mean() - few.mean()) if many.mean() > few.mean() else 1.0
        extra = max(0.0, questions - many.mean())  # about nothing
        lots = min(lots, 1.0)
        return (1 - lots) * self.net(few, price) + lots * self.net(many, price) - prices * extra

    def best_number(self, price: float) -> int:
        """The one number of questions, the same in every game, that earns the most on average: the least of those that do."""
        nets = self.rewards.mean(axis=0) - price * np.arange(self.rewards.shape[1])
        return int(np.isclose(nets, nets.max(), rtol=0, atol=1e-12).argmax())
