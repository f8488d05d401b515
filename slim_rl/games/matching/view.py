"""View of a matching game from one seat, for scripted players."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from slim_rl.games.matching.optimum import Assignment
from slim_rl.games.matching.roster import Pair, Roster


@dataclass(frozen=True, slots=True)
class MatchingView:
    """See the module's docstring.

    Attributes:
        seat: whose view this is.
        roster: the names.
        table: displayed scores, table[reviewer][paper]; None where unseen.
        scale: the seat's own scale; score = displayed / scale, up to rounding.
        pending: the proposal this seat must answer now, or None.
        turns_left: valid actions left to both seats together.
        proposals_left: plans the seat may still propose; None for any number.
        solver: whether `[propose]` alone is a whole plan.
    """

    seat: int
    roster: Roster
    table: tuple[tuple[int | None, ...], ...]
    scale: float
    pending: Assignment | None
    turns_left: int
    proposals_left: int | None = None
    solver: bool = False

    def __getitem__(self, pair: Pair) -> int | None:
        """Returns the score of a cell as it is shown."""
        return self.table[pair[0]][pair[1]]

    @property
    def pairs(self) -> list[Pair]:
        """Returns all cells, row by row."""
        return list(itertools.product(range(len(self.table)), range(len(self.table))))

    @property
    def seen(self) -> list[Pair]:
        """Returns the cells that the seat sees."""
        return [pair for pair in self.pairs if self[pair] is not None]

    @property
    def unseen(self) -> list[Pair]:
        """Returns the cells that it does not see."""
        return [pair for pair in self.pairs if self[pair] is None]
