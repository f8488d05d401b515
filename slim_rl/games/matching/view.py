"""What a player of the matching game that is a program looks at."""

from __future__ import annotations

from dataclasses import dataclass

from slim_rl.games.matching.optimum import Assignment
from slim_rl.games.matching.roster import Roster


@dataclass(frozen=True, slots=True)
class MatchingView:
    """What one seat sees, for players that are programs.

    Attributes:
        seat: whose view this is.
        roster: the names.
        table: displayed scores, table[reviewer][paper]; None where unseen.
        scale: the seat's own scale; score = displayed / scale, up to rounding.
        pending: the proposal this seat must answer now, or None.
        turns_left: valid actions left to both seats together.
        proposals_left: plans the seat may still propose; None for any number.
    """

    seat: int
    roster: Roster
    table: tuple[tuple[int | None, ...], ...]
    scale: float
    pending: Assignment | None
    turns_left: int
    proposals_left: int | None = None
