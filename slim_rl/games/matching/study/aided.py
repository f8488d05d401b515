"""Knowledge of a player: the scores it sees, those it learned, and the pairs it asked about in vain.

Scripted players plan by it. A game shows it with `show_known`, and plans by it with `planner: solver`; without them the game reads no words.

Invariants:
    A score counts as learned if the annotator counts it (`questions.answers.stated`), with the value that was stated, true or not.
    The player's own view takes precedence; of a pair stated twice, the last value counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slim_rl.environment import View
from slim_rl.games.matching.generate import SCALES, VALUES
from slim_rl.games.matching.prompt import Shown, table_lines
from slim_rl.games.matching.questions.answers import stated
from slim_rl.games.matching.reading.reader import LOOK_BACK, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import UNSEEN_VALUE, Assignment

IN_VAIN = "-"  # in a table of what a player knows: it asked, and was told no score


@dataclass(frozen=True, slots=True)
class Learned:
    """Outcome of a conversation for one seat.

    Attributes:
        scores: scores that it learned, as they were stated.
        asked: the pairs that it asked about.
    """

    scores: dict[Pair, float] = field(default_factory=dict)
    asked: set[Pair] = field(default_factory=set)

    def fill(self, shown: Shown) -> list[list[float | None]]:
        """Returns `shown` with learned scores in its empty cells."""
        return [
            [self.scores.get((r, p)) if value is None else value for p, value in enumerate(row)]
            for r, row in enumerate(shown)
        ]

    def expected(self, shown: Shown, scale: float) -> NDArray[np.float64]:
        """Returns each score's expectation, (n, n), on the true scale: seen, learned, or the mean.

        Args:
            scale: scale of `shown`. If it is not 1, learned scores have a factor that the player does not know: the largest of k scores,
                uniform on 0..99, is expected to be 99 k / (k + 1), times that factor.
        """
        factor = 1.0
        if scale != 1.0 and self.scores:
            expected_largest = (VALUES - 1) * len(self.scores) / (len(self.scores) + 1)
            factor = float(np.clip(max(self.scores.values()) / expected_largest, *SCALES))
        table = np.array([[np.nan if cell is None else cell / scale for cell in row] for row in shown])
        values = np.where(np.isnan(table), UNSEEN_VALUE, table)
        for pair, value in self.scores.items():
            if np.isnan(table[pair]):
                values[pair] = value / factor
        return values

    def lines(self, shown: Shown, roster: Roster, one_scale: bool = True, plan: Assignment | None = None) -> list[str]:
        """Formats a seat's knowledge, one line per reviewer: a score, "?" if it has none, or `IN_VAIN`.

        Args:
            one_scale: whether both seats' scores are on one scale; otherwise learned scores stay out, since they are not comparable.
            plan: plan whose pairs are marked.
        """
        known = self.fill(shown) if one_scale else shown
        in_vain = self.asked - self.scores.keys()
        cells = [
            [IN_VAIN if value is None and (r, p) in in_vain else value for p, value in enumerate(row)]
            for r, row in enumerate(known)
        ]
        return table_lines(roster, cells, plan)


def learned_in(view: View) -> Learned:
    """Returns what the view's seat learned. Callers share the result and must not change it."""
    messages = tuple((utterance.seat, utterance.text) for utterance in view.history if utterance.error is None)
    return learned(view.seat, view.private.roster, messages)


@lru_cache(maxsize=4096)  # a player asks several times a turn
def learned(seat: int, roster: Roster, messages: tuple[tuple[int, str], ...]) -> Learned:
    """Returns what a seat learned from all messages and rejections so far, each (author, text). Never raises."""
    outcome = Learned()
    asking: Sequence[Pair] = ()
    for number, (author, text) in enumerate(messages):
        if author == seat:
            before = [earlier for _, earlier in messages[max(0, number - LOOK_BACK) : number]]
            asking = read(text, roster, before).asked
            outcome.asked.update(asking)
        else:
            outcome.scores.update(stated(asking, text, roster))
            asking = ()
    return outcome
