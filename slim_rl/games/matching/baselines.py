"""Scripted policies, by name, to compare a policy with: the floor and the ceiling of the matching game.

Each knows what its seat sees and learns, and the chances of the config's deals; none knows the table.
"""

from __future__ import annotations

from typing import Any

from slim_rl.environment import View
from slim_rl.games.matching.players import Asker, Player, best_question, best_score
from slim_rl.games.matching.settings import MatchingSettings
from slim_rl.games.matching.view import MatchingView


class Ideal(Asker):
    """Policy that asks the best question, one at a time, until the next would cost more than its expected gain.

    Args:
        price: question cost, as a share of the best score.
        chances: chance that the other seat sees a pair, for an asker in seat 0 and in seat 1.
    """

    def __init__(self, price: float, chances: tuple[float, float]) -> None:
        super().__init__(0, "best")
        self.name = f"ideal asker at {price:g} a question"
        self.price, self.chances = price, chances

    def message(self, view: View, number: int) -> str | None:
        game: MatchingView = view.private
        if number >= len(game.unseen):
            return None
        pair, points = best_question(view)
        expected_gain = self.chances[view.seat] * points
        if expected_gain <= 0 or (self.price and expected_gain < self.price * best_score(view)):
            return None
        return f"What is {game.roster.pair(pair)}?"


def baselines(game: MatchingSettings, price: float = 0.0, number: int = 4) -> dict[str, Any]:
    """Returns the policies of `MeasuredEnvironment.baselines`.

    They are a random plan, the best plan without a question, the best plan after given numbers of random or best questions, and after all
    questions that gain more than they cost.
    """
    theirs = game.p_observed if game.p_observed_2 is None else game.p_observed_2
    return {
        "random": Player("one random plan", by_chance=True),
        "solo": Player("one solo plan", listens=True),  # to what evaluation makes it ask
        f"forced:{number}": Asker(number),
        f"greedy:{number}": Asker(number, "best"),
        "ideal": Ideal(price, (theirs, game.p_observed)),
    }
