"""Whether a message asks about a pair, in the one sense in which the whole project counts it. It does if

    the instrument's rules say so (`classify`),
    or the reading of the scripted partners does (`reading.interpretation`),
    or the reply tells scores of pairs that the message names, and of no others.

So a score that is told in answer to a message was asked for; the rules only say of what kind the question is. A reply that tells
other pairs too volunteers: a partner that tells whatever is said makes no question of "Hello" or of a plan. Nor does one that only
repeats a score which the message states.

The first two need the message alone (`asked`), the third its reply (`answered`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.questions.classify import questions
from slim_rl.games.matching.questions.rules import INFORMATION_SEEKING, KINDS
from slim_rl.games.matching.reading.interpretation import interpret
from slim_rl.games.matching.reading.masking import body
from slim_rl.games.matching.reading.pairing import by_side, last_named
from slim_rl.games.matching.roster import Pair, Roster


@dataclass(frozen=True, slots=True)
class Asked:
    """What a message asks: its kinds of question, in the order of `KINDS`, and the pairs, each once."""

    labels: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()

    @property
    def seeking(self) -> bool:
        """Whether it seeks information."""
        return not INFORMATION_SEEKING.isdisjoint(self.labels)


def asked(text: str, previous: str, roster: Roster | None) -> Asked:
    """What a message asks by its own words, after the partner's `previous` ones. Never raises.

    Without a roster, as for another game, the rules alone say it. Whether the message is a sentence is not looked at.
    """
    found = questions(text, previous, roster)
    labels = {question.label for question in found}
    pairs = [pair for question in found for pair in question.pairs]
    if roster is not None and (heard := interpret(text, roster).asked):
        labels.add("pair")
        pairs += heard
    return _asked(labels, pairs)


def seeks_information(text: str, game_state: Any = None) -> bool:
    """Whether a message seeks information; also one that is no sentence, since a lenient partner might answer it, and then it did.

    Args:
        game_state: of the game it is said in, which has the names; None: DialOp's.
    """
    roster = Roster.default() if game_state is None else GameState.from_dict(game_state).roster
    return asked(text, "", roster).seeking


def answered(before: Asked, told: Sequence[Pair], text: str, previous: str, reply: str, roster: Roster) -> Asked:
    """What a message asked, now that the reply to it has `told` scores of these pairs. Never raises.

    Args:
        before: what it asks by its own words; nothing if it is no sentence.
        text, previous, reply: the message, the partner's words before it and after it.
    """
    unasked = set(told).difference(before.pairs)
    if not unasked:
        return before
    stated = set(interpret(text, roster).told)
    unasked -= {pair for pair, value in interpret(reply, roster).told if (pair, value) in stated}
    if not unasked or not unasked <= named(text, previous, roster):
        return before
    return _asked({*before.labels, "pair"}, [*before.pairs, *(pair for pair in told if pair in unasked)])


def named(text: str, previous: str, roster: Roster) -> set[Pair]:
    """Every pair of a reviewer and a paper that a message names, in whatever form; if it names one side only, the other is what the
    partner named last before it."""
    reviewers, papers = by_side(body(text, roster))
    if not reviewers and not papers:
        return set()
    before = body(previous, roster)
    reviewers = reviewers or by_side(last_named(before, "R"))[0]
    papers = papers or by_side(last_named(before, "P"))[1]
    return set(itertools.product(reviewers, papers))


def _asked(labels: set[str], pairs: Sequence[Pair]) -> Asked:
    return Asked(tuple(label for label in KINDS if label in labels), tuple(dict.fromkeys(pairs)))
