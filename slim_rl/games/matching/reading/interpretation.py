"""What a message asks and what it tells. A pair is asked about only where a question names both reviewer and paper:

    `Interpretation.asked` never holds a pair that only a statement, a suggestion or a general question names.

Text is masked and cut into sentences as for the measuring instrument; the rules here and in `wording`, which say what a clause
does, are the partner's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.reading.clauses import announces_list, goes_on, is_bare, sentences
from slim_rl.games.matching.reading.form import is_malformed
from slim_rl.games.matching.reading.masking import READ_UP_TO, mask, untagged
from slim_rl.games.matching.reading.pairing import completed_pairs, named_pairs, stated_values
from slim_rl.games.matching.reading.wording import echoes, mood, parts
from slim_rl.games.matching.roster import Pair, Roster


@dataclass(frozen=True, slots=True)
class Interpretation:
    """What one message says.

    Attributes:
        asked: the (reviewer, paper) pairs directly asked about, in the order asked, each once.
        general: whether it asks something else: about a whole reviewer, the table, or no score at all.
        suggests: whether it suggests or seeks consent instead ("Should we put Ava on BLEU?").
        told: the (pair, value) statements in it, in order: "Ava on BLEU is 62", "Ava: BLEU 62".
        malformed: whether it cannot be read as a sentence (see `form`); what it asks and tells is a guess then.
    """

    asked: tuple[Pair, ...] = ()
    general: bool = False
    suggests: bool = False
    told: tuple[tuple[Pair, float], ...] = ()
    malformed: bool = False


def interpret(text: str, roster: Roster) -> Interpretation:
    """Reads the first `READ_UP_TO` characters of one message, its action tag on or off. A proposal or acceptance asks and tells
    nothing. Never raises."""
    return _interpret(text[:READ_UP_TO], roster)


@lru_cache(maxsize=16384)
def _interpret(text: str, roster: Roster) -> Interpretation:
    tag, body = untagged(text)
    if tag in ("propose", "accept"):
        return Interpretation()
    asked: list[Pair] = []
    told: list[tuple[Pair, float]] = []
    general = suggests = False
    before: Sequence[Pair] = ()  # the pairs of the clause before
    asking = listing = False  # whether that clause asked, and whether names alone continue it
    for clause, marked in _clauses(mask(body, roster)):
        pairs: Sequence[Pair] = named_pairs(clause)
        if not pairs and before and ((asking and goes_on(clause, marked)) or echoes(clause, len(before))):
            pairs = completed_pairs(clause, before)
            does = "ask"
        elif listing and pairs and is_bare(clause):
            does = "ask"
        else:
            does = mood(clause, marked)
        asking = does == "ask"
        listing = asking and (is_bare(clause) if pairs else announces_list(clause))
        before = pairs
        if asking:
            asked += pairs
            general = general or not pairs
        elif does == "suggest":
            suggests = True
        else:
            told += stated_values(clause)
    return Interpretation(tuple(dict.fromkeys(asked)), general, suggests, tuple(told), is_malformed(text, roster))


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """The clauses of a masked message, each with whether a question mark closes it."""
    for sentence, marked in sentences(text):
        clauses = parts(sentence)
        for number, clause in enumerate(clauses, 1):
            yield clause, marked and number == len(clauses)
