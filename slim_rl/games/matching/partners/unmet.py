"""Shy partners that a policy was not trained with: what it learned is tried on them (`slim-rl evaluate --partner erring`).

erring      tells a wrong score in 10% of its answers. Of a pair it always tells the same.
rephrased   says the same in other words; all of its sentences can be read by `reading.reader`.
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
    """See the module's docstring.

    Attributes:
        errs: the chance that the score it tells of a pair is another one, drawn evenly from all that there are.
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
    told = TOLD
    not_told = NOT_TOLD
    wordings: int = len(TOLD)
