"""What a player has by what it sees, what it was told and what it asked in vain.

a score counts as told where the measuring instrument counts it (`questions.answers.stated`), by the value that was said, true or not
a player's own sight goes before what it is told; of a pair told twice the last counts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slim_rl.environment import View
from slim_rl.games.matching.instance import UNSEEN_VALUE
from slim_rl.games.matching.optimum import Assignment
from slim_rl.games.matching.prompt import Shown, table_lines
from slim_rl.games.matching.questions.answers import stated
from slim_rl.games.matching.reading.reader import LOOK_BACK, read
from slim_rl.games.matching.roster import Pair, Roster

IN_VAIN = "-"  # in a table of what a player knows: it asked, and was told no score


@dataclass(slots=True)
class Heard:
    """What comes of a conversation for one seat.

    Attributes:
        told: the scores it was told, as they were said.
        asked: the pairs that it asked about.
    """

    seat: int
    roster: Roster
    told: dict[Pair, float] = field(default_factory=dict)
    asked: set[Pair] = field(default_factory=set)
    _read: int = 0
    _open: Sequence[Pair] = ()  # what it asked last

    def read(self, said: Sequence[tuple[int, str]]) -> Heard:
        """Takes in messages and rejections, each (author, text): all that were said so far, of which it reads the new ones. Never
        raises.
        """
        for number, (author, text) in enumerate(said[self._read :], self._read):
            if author == self.seat:
                before = [earlier for _, earlier in said[max(0, number - LOOK_BACK) : number]]
                self._open = read(text, self.roster, before).asked
                self.asked.update(self._open)
            else:
                self.told.update(stated(self._open, text, self.roster))
                self._open = ()
        self._read = len(said)
        return self

    def fill(self, shown: Shown) -> list[list[float | None]]:
        """`shown` with what was told in its empty cells."""
        return [
            [self.told.get((r, p)) if value is None else value for p, value in enumerate(row)]
            for r, row in enumerate(shown)
        ]


def heard(view: View) -> Heard:
    """What came of the conversation for the seat whose view it is; to be looked at only, for those who ask share it."""
    said = tuple((utterance.seat, utterance.text) for utterance in view.history if utterance.error is None)
    return _heard(view.seat, view.private.roster, said)


@lru_cache(maxsize=4096)  # a player asks several times a turn
def _heard(seat: int, roster: Roster, said: tuple[tuple[int, str], ...]) -> Heard:
    return Heard(seat, roster).read(said)


def known_lines(heard: Heard, shown: Shown, one_scale: bool = True, plan: Assignment | None = None) -> list[str]:
    """What a seat knows as text, one line a reviewer: a score, "?" where it has none, or `IN_VAIN`.

    Args:
        one_scale: whether both seats' scores are on one; else what was told stays out, for it would stand among its own as if it were.
        plan: whose pairs are marked.
    """
    known = heard.fill(shown) if one_scale else shown
    in_vain = heard.asked - heard.told.keys()
    return table_lines(
        heard.roster,
        [
            [IN_VAIN if value is None and (r, p) in in_vain else value for p, value in enumerate(row)]
            for r, row in enumerate(known)
        ],
        plan,
    )


def expected_scores(shown: Shown, scale: float, told: Mapping[Pair, float]) -> NDArray[np.float64]:
    """What each score is expected to be, (n, n), on the true scale: seen, or told, or the mean.

    Args:
        scale: by which `shown` is scaled. Where it is not 1, what was told is scaled by a factor that the player does not know.
    """
    table = np.array([[np.nan if cell is None else cell / scale for cell in row] for row in shown])
    values = np.where(np.isnan(table), UNSEEN_VALUE, table)
    share = 1.0 if scale == 1.0 else _unscaling(list(told.values()))
    for pair, value in told.items():
        if np.isnan(table[pair]):
            values[pair] = value * share
    return values


def _unscaling(told: Sequence[float]) -> float:
    """The expected 1 / factor of scores, uniform on 0..99, that were told times a factor, uniform on `SCALES`: Bayes' rule over a
    grid, where the likelihood of k of them is factor^-k if none would exceed 99."""
    from slim_rl.games.matching.generate import SCALES, VALUES  # which a game on one scale does without

    factors = np.linspace(*SCALES, 400)
    weights = np.where(max(told, default=0.0) < factors * VALUES, factors ** -len(told), 0.0)
    return float(np.average(1 / factors, weights=weights)) if weights.any() else 1 / SCALES[1]
