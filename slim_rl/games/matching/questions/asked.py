"""Definition of a question about a pair, the only one in the project. A message asks about a pair if

    the reader reads it so (`reading.reader`), whose reading partners answer too,
    or the reply states scores of pairs that the message names, and of no others.

So a score that is stated in answer to a message was asked for, also from a partner that reads better. A reply that states other pairs too
volunteers: a partner that answers anything makes no question of "Hello" or of a plan. A reply that only repeats a score from the message
makes none either.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from slim_rl.games.matching.reading.masking import body
from slim_rl.games.matching.reading.pairing import by_side, last_named
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import GameState


def seeks_information(text: str, game_state: Any = None) -> bool:
    """Returns True if a message seeks information, also if it is no sentence, since a lenient partner might answer it.

    Args:
        game_state: state of its game, which has the names; None: DialOp's.
    """
    roster = Roster.default() if game_state is None else GameState.from_dict(game_state).roster
    return read(text, roster).seeking


def answered(
    asked: Sequence[Pair], stated_pairs: Sequence[Pair], text: str, previous: str, reply: str, roster: Roster
) -> list[Pair]:
    """Returns the pairs that a message asked about besides `asked`, since the reply states the scores of `stated_pairs`. Never raises.

    Args:
        asked: the pairs that it asks about by its own words; none if it is no sentence.
        text, previous, reply: the message, the partner's words before it and after it.
    """
    unasked = set(stated_pairs).difference(asked)
    if not unasked:
        return []
    stated = set(read(text, roster).statements)
    unasked -= {pair for pair, value in read(reply, roster).statements if (pair, value) in stated}
    return [pair for pair in stated_pairs if pair in unasked] if unasked <= named(text, previous, roster) else []


def named(text: str, previous: str, roster: Roster) -> set[Pair]:
    """Returns every pair of a reviewer and a paper that a message names.

    If it names one side only, the other is what the partner named last before it.
    """
    reviewers, papers = by_side(body(text, roster))
    if not reviewers and not papers:
        return set()
    before = body(previous, roster)
    reviewers = reviewers or by_side(last_named(before, "R"))[0]
    papers = papers or by_side(last_named(before, "P"))[1]
    return set(itertools.product(reviewers, papers))
