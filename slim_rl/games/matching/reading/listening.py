"""What a message asks and what it tells. A pair is asked about only where a question names both reviewer and paper:

    asked_pairs(text, roster) never holds a pair that only a statement, a suggestion or a general question names.

Names are replaced by tokens and the message is cut into clauses; `wording` says what a clause does, `pairing` which
pairs it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.reading.pairing import Pair, completed_pairs, named_pairs, stated_values
from slim_rl.games.matching.reading.wording import announces_list, continues, echoes, is_bare, mood, parts
from slim_rl.games.matching.roster import Roster


@dataclass(frozen=True, slots=True)
class Heard:
    """What one message says.

    Attributes:
        asked: the (reviewer, paper) pairs directly asked about, in the order asked, each once.
        general: whether it asks something else: about a whole reviewer, the table, or no score at all.
        suggests: whether it suggests or seeks consent instead ("Should we put Ava on BLEU?").
        told: the (pair, value) statements in it, in order.
    """

    asked: tuple[Pair, ...] = ()
    general: bool = False
    suggests: bool = False
    told: tuple[tuple[Pair, float], ...] = ()


def asked_pairs(text: str, roster: Roster) -> list[Pair]:
    """The (reviewer, paper) pairs a message directly asks about, in order, each once. Never raises."""
    return list(listen(text, roster).asked)


def told_values(text: str, roster: Roster) -> list[tuple[Pair, float]]:
    """The (pair, value) statements of a message, in order: "Ava on BLEU is 62", "Ava: BLEU 62". Never raises."""
    return list(listen(text, roster).told)


@lru_cache(maxsize=16384)
def listen(text: str, roster: Roster) -> Heard:
    """Reads one message, its action tag on or off. A proposal or acceptance asks and tells nothing. Never raises."""
    tag = _TAG.match(text)
    if tag and tag[1].lower() in ("propose", "accept"):
        return Heard()
    asked: list[Pair] = []
    told: list[tuple[Pair, float]] = []
    general = suggests = False
    before: list[Pair] = []  # the pairs of the clause before
    asking = listing = False  # whether that clause asked, and whether names alone go on with it
    for clause, marked in _clauses(_masked(text[tag.end() :] if tag else text, roster)):
        pairs = named_pairs(clause)
        if not pairs and before and ((asking and continues(clause, marked)) or echoes(clause, len(before))):
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
    return Heard(tuple(dict.fromkeys(asked)), general, suggests, tuple(told))


_TAG = re.compile(r"[^\w\[]*\[\s*(message|propose|accept|reject)\s*\]", re.IGNORECASE)
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "`": "'"})
_BREAK = re.compile(r"<br\s*/?>|\r\n?|\u2028", re.IGNORECASE)
_ITEM = re.compile(r"\s*(?:[-*\u2022\u2013]+|\(?\d{1,2}[.)](?!\d))\s+")
_CARRIES_ON = re.compile(r"(?:on|for|at|with|in|vs|than|of)\b|[?!. ]+$")
# A full stop between digits is a decimal point, and the one of "vs." ends nothing.
_SENTENCE = re.compile(r"(?:[^.?!]|(?<=\d)\.(?=\d)|(?<=\bvs)\.)+([.?!]*)")


def _masked(text: str, roster: Roster) -> str:
    """The text in lower case, each name replaced by its token."""
    text = _BREAK.sub("\n", text).translate(_STRAIGHT)
    pieces, end = [], 0
    for mention in roster.find(text):
        pieces += [text[end : mention.start].lower(), f"{'R' if mention.kind == 'reviewer' else 'P'}{mention.index}"]
        end = mention.end
    return "".join([*pieces, text[end:].lower()])


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """The clauses of a message, each with whether a question mark closes it."""
    for line in _joined_lines(text):
        for sentence in _SENTENCE.finditer(line):
            clauses = parts(sentence[0].strip(" \t.?!"))
            for number, clause in enumerate(clauses, 1):
                yield clause, number == len(clauses) and "?" in sentence[1]


def _joined_lines(text: str) -> list[str]:
    """Lines without their bullets. A line is joined to the one before if a colon introduces it, if it goes on with such
    a list (as a bullet, or naming only), or if it begins with a preposition."""
    lines: list[str] = []
    listed = False
    for raw in text.split("\n"):
        item = _ITEM.match(raw)
        line = (raw[item.end() :] if item else raw).strip()
        if not line:
            continue
        last = lines[-1] if lines else "."
        introduced = last.endswith(":")
        listed = introduced or (listed and (item is not None or is_bare(line)))
        if introduced or (last[-1] not in ".?!" and _CARRIES_ON.match(line)):
            lines[-1] = f"{last} {line}"
        elif listed:
            lines[-1] = f"{last.rstrip(' .,;')}, {line}"
        else:
            lines.append(line)
    return lines
