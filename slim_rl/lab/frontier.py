"""Frontier: reward of a simulated asker after each number of questions, and its net reward at a question cost.

    net reward after k questions = reward of the best plan then - k × question cost

Each game computes its frontier (`Instrument.frontier`); the rest is the same for every game.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST = 64  # default maximum number of questions
Floats = NDArray[np.float64]


class Frontier(NamedTuple):
    """Frontier of one asker.

    Attributes:
        rewards: reward after 0, 1, ..., `most` questions, shape (games, most + 1).
        expected_gain: expected gain of the next question given the asker's knowledge, same shape; -inf if no question is left.
    """

    rewards: Floats
    expected_gain: Floats

    def at(self, questions: ArrayLike) -> Floats:
        """Returns the rewards after this number of questions, shape (games,).

        Beyond the last question the reward is constant.

        Args:
            questions: whole number of questions, a scalar or shape (games,).
        """
        asked = np.minimum(questions, self.rewards.shape[1] - 1).astype(int)
        return self.rewards[np.arange(len(self.rewards)), asked]

    def net(self, questions: ArrayLike, price: ArrayLike) -> Floats:
        """Returns the net reward after this number of questions, shape (games,); `price` is a scalar or has that shape."""
        return self.at(questions) - np.asarray(price) * np.asarray(questions, dtype=float)

    def stops(self, price: ArrayLike) -> NDArray[np.intp]:
        """Returns the number of questions, shape (games,), of an asker that stops when the expected gain is below the cost."""
        enough = self.expected_gain < np.reshape(price, (-1, 1))
        enough[:, -1] = True
        return enough.argmax(axis=1)

    def net_allocated(self, questions: float, price: ArrayLike) -> Floats:
        """Returns the net reward, shape (games,), for a mean of `questions`, allocated to the games of the highest expected gain.

        The allocation is a threshold on expected gain (minus the game's extra cost); between two thresholds the result is
        interpolated.
        """
        prices = np.broadcast_to(np.asarray(price, dtype=float), len(self.rewards))
        more = prices - prices[:1]
        expected_gain = self.expected_gain - more[:, None]
        costs = np.concatenate([[np.inf], np.unique(expected_gain[np.isfinite(expected_gain)])[::-1]])
        first, last = 0, len(costs) - 1  # no questions, all questions
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if self.stops(costs[middle] + more).mean() <= questions else (first, middle)
        few, many = self.stops(costs[first] + more), self.stops(costs[last] + more)
        weight = (questions - few.mean()) / (many.mean() - few.mean()) if many.mean() > few.mean() else 1.0
        extra = max(0.0, questions - many.mean())  # questions without any gain
        weight = min(weight, 1.0)
        return (1 - weight) * self.net(few, price) + weight * self.net(many, price) - prices * extra
