"""Beliefs of a player: the scores it sees, those it learned, and the pairs it asked about in vain.

A score counts as learned if the annotator counts it (`questions.answers.stated`), with the value that was stated, true or not. The
player's own view takes precedence; of a pair stated twice, the last value counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slim_rl.environment import View
from slim_rl.games.matching.prompt import Shown, table_lines
from slim_rl.games.matching.questions.answers import stated
from slim_rl.games.matching.reading.reader import LOOK_BACK, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import UNSEEN_VALUE, Assignment

IN_VAIN = "-"  # in a table of what a player knows: it asked, and was told no score


@dataclass(slots=True)
class Conversation:
    """Outcome of a conversation for one seat.

    Attributes:
        scores: scores that it learned, as they were stated.
        asked: the pairs that it asked about.
    """

    seat: int
    roster: Roster
    scores: dict[Pair, float] = field(default_factory=dict)
    asked: set[Pair] = field(default_factory=set)
    _read: int = 0
    _open: Sequence[Pair] = ()  # what it asked last

    def read(self, messages: Sequence[tuple[int, str]]) -> Conversation:
        """Reads the new ones of all messages and rejections so far, each (author, text). Never raises."""
        for number, (author, text) in enumerate(messages[self._read :], self._read):
            if author == self.seat:
                before = [earlier for _, earlier in messages[max(0, number - LOOK_BACK) : number]]
                self._open = read(text, self.roster, before).asked
                self.asked.update(self._open)
            else:
                self.scores.update(stated(self._open, text, self.roster))
                self._open = ()
        self._read = len(messages)
        return self

    def fill(self, shown: Shown) -> list[list[float | None]]:
        """Returns `shown` with learned scores in its empty cells."""
        return [
            [self.scores.get((r, p)) if value is None else value for p, value in enumerate(row)]
            for r, row in enumerate(shown)
        ]


def read_conversation(view: View) -> Conversation:
    """Returns the conversation's outcome for the view's seat. Callers share the result and must not change it."""
    messages = tuple((utterance.seat, utterance.text) for utterance in view.history if utterance.error is None)
    return _read_messages(view.seat, view.private.roster, messages)


@lru_cache(maxsize=4096)  # a player asks several times a turn
def _read_messages(seat: int, roster: Roster, messages: tuple[tuple[int, str], ...]) -> Conversation:
    return Conversation(seat, roster).read(messages)


def known_lines(
    conversation: Conversation, shown: Shown, one_scale: bool = True, plan: Assignment | None = None
) -> list[str]:
    """Formats a seat's knowledge, one line per reviewer: a score, "?" if it has none, or `IN_VAIN`.

    Args:
        one_scale: whether both seats' scores are on one scale; otherwise learned scores stay out, since they are not comparable.
        plan: plan whose pairs are marked.
    """
    known = conversation.fill(shown) if one_scale else shown
    in_vain = conversation.asked - conversation.scores.keys()
    return table_lines(
        conversation.roster,
        [
            [IN_VAIN if value is None and (r, p) in in_vain else value for p, value in enumerate(row)]
            for r, row in enumerate(known)
        ],
        plan,
    )


def expected_scores(shown: Shown, scale: float, scores: Mapping[Pair, float]) -> NDArray[np.float64]:
    """Returns each score's expectation, (n, n), on the true scale: seen, learned, or the mean.

    Args:
        scale: scale of `shown`. If it is not 1, learned scores have a factor that the player does not know.
    """
    table = np.array([[np.nan if cell is None else cell / scale for cell in row] for row in shown])
    values = np.where(np.isnan(table), UNSEEN_VALUE, table)
    share = 1.0 if scale == 1.0 else _unscaling(list(scores.values()))
    for pair, value in scores.items():
        if np.isnan(table[pair]):
            values[pair] = value * share
    return values


def _unscaling(scores: Sequence[float]) -> float:
    """Returns the expected 1 / factor of learned scores, uniform on 0..99, times a factor, uniform on `SCALES`.

    Bayes' rule over a grid: the likelihood of k of them is factor^-k if none would exceed 99.
    """
    from slim_rl.games.matching.generate import SCALES, VALUES  # which a game on one scale does without

    factors = np.linspace(*SCALES, 400)
    weights = np.where(max(scores, default=0.0) < factors * VALUES, factors ** -len(scores), 0.0)
    return float(np.average(1 / factors, weights=weights)) if weights.any() else 1 / SCALES[1]
