"""Shy partners that a policy was not trained with, to test what it learned (`slim-rl evaluate --partner erring`).

erring      states a wrong score in 10% of its answers, always the same for a pair.
rephrased   uses other sentences; `reading.reader` can read all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from slim_rl.environment import View
from slim_rl.games.matching.generate import VALUES
from slim_rl.games.matching.partners.scripted import ShyPartner, check_chance, drawn
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.view import MatchingView

TOLD = (
    "I have {value} for {names}.",
    "For {names} my table says {value}.",
    "{names} is {value}.",
    "{names} would be {value}.",
)
NOT_TOLD = ("I do not see {names}.", "{names} is blank on my side.", "My table has nothing for {names}.")


@dataclass
class ErringPartner(ShyPartner):
    """Shy partner that errs: see the module's docstring.

    Attributes:
        errs: chance that the score it states for a pair is another one, drawn uniformly from all possible ones.
    """

    kind = "erring"
    errs: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chance("errs", self.errs)

    def value(self, pair: Pair, view: View, game: MatchingView) -> int | None:
        value = game[pair]
        if value is None or drawn(view, "errs", pair) >= self.errs:
            return value
        others = [other for other in (int(number * game.scale) for number in range(VALUES)) if other != value]
        return others[int(drawn(view, "error", pair) * len(others))]


@dataclass
class RephrasedPartner(ShyPartner):
    """See the module's docstring. Which words it takes for a pair is drawn from the dialogue's seed."""

    kind = "rephrased"
    score_sentences = TOLD
    denial_sentences = NOT_TOLD
    wordings: int = len(TOLD)
