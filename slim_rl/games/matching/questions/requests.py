"""Requests for scores that are not worded as questions: "Please provide the score for ...", "I need your figure for ...", lists.

Models ask so more than people do. Patterns read the words of `reading.clauses.word_clauses`, as those of `rules` do. Of each only the
first place in a clause is looked at: what has to follow a request follows the first if it follows any.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from slim_rl.games.matching.reading.masking import NAME

_SCORE = re.compile(
    r"\b(?:scores?|values?|numbers?|figures?|ratings?|entry|entries|cells?|points|data|information|table|row|column|pairs|things)\b"
)
_REVIEWER = re.compile(r"R\w|\b(?:he|she|his|her|him|they|their|them)\b")
_PAPER = re.compile(r"P\w")
_ANY_OF = re.compile(r"\bwhat(?:ever)? you\b|\b(?:each|those|these|them)\b")
_YOUR = re.compile(r"\byour?\b")
_IF = re.compile(r"\b(?:if|whether|when|that)\b")
_PLACES = re.compile(r"\b(?:put|takes?|keep|gets?|go)\b")

_NO_PLAN = r"(?! (?:\w+ ){0,3}(?:propos\w+|plan|assignment|accept\w*|agree\w*)\b| (?:that|if|whether)\b)"
_VERB = (
    r"(?:provide|state|confirm|report|share(?! P\w+ (?:between|among))|send|give (?=me|us|your|the|a)|tell|look up|fill|complete|list|name|disclose|reveal|reply|read out|quote|"
    r"indicate|return|show|rank|rate|compare|verify|check|respond|answer|supply)\b"
)
_WANT = (
    r"(?:(?:i|we|i'm|i am|i was)(?: \w+)? (?:need|want|require|request|missing|lack|asking for|looking for|interested in|keen on)|"
    r"(?:i'd|i would|we'd|we would)(?: \w+)? (?:like|love|appreciate|be grateful for))\b"
)
_DO = r"(?:someone|to (?:put|keep|share|tell|give|assign|propose|place|move|pick|swap|go))"
_KNOW = r"(?:know|hear|have|see|learn|tell|share)\b"
_FIRST = r"(?:^|(?<=[,:)-] )|\bthen )"


def _pair(rest: str) -> bool:
    return _REVIEWER.search(rest) is not None and _PAPER.search(rest) is not None


def _score(rest: str) -> bool:
    return _SCORE.search(rest) is not None or _pair(rest)


def _own(rest: str) -> bool:
    return _SCORE.search(rest) is not None and (_pair(rest) or _YOUR.search(rest) is not None)


# What requests begin with, and what has to follow
_REQUESTS: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = (
    (
        re.compile(
            r"\b(?:please|kindly|(?:perhaps|maybe) you (?:could|can)|feel free to|ask you to|like you to|be so kind as to) "
            rf"(?:also |just |now |kindly )?{_VERB}{_NO_PLAN}"
        ),
        lambda rest: _score(rest) or _ANY_OF.search(rest) is not None,
    ),
    (
        re.compile(rf"{_FIRST}(?!tell|check|show){_VERB}{_NO_PLAN} (?!my|mine|i |i'll|us |it\b)"),
        lambda rest: _score(rest) or _ANY_OF.search(rest) is not None,
    ),
    (
        re.compile(rf"{_FIRST}(?:tell|show|give|send) me\b{_NO_PLAN}"),
        lambda rest: _pair(rest.partition(",")[0]) and not _IF.search(rest),
    ),
    (re.compile(r"\b(?:may|might|can|could) i (?:ask (?:for|about)|know|have|get|see)\b"), _score),
    (
        re.compile(
            r"^(?:just )?wondering\b|(?:^|(?<=, ))(?:rank|rate|compare)\b|"
            r"^(?:needed|needs?|wanted|requests?|query|questions?)\b(?: \w+)? :"
        ),
        lambda rest: NAME.search(rest) is not None,
    ),
    (re.compile(rf"\b{_WANT}(?! {_DO})|\blet me have\b"), _own),
    (
        re.compile(
            rf"\b(?:would|will|might) (?:be \w+|help(?: me)?(?: a lot)?) (?:to|if (?:i|you)(?: could)?) {_KNOW}"
        ),
        lambda rest: rest != "",
    ),
    (
        re.compile(
            r"\bwhat i(?: still)? (?:need|want|lack|am missing)\b|\bneed(?:ed)? from you\b|\byour turn to (?:tell|share|give)\b"
        ),
        lambda rest: True,
    ),
)
# One of these words is in every request.
_WORDS = frozenset(
    """
    please kindly perhaps maybe feel ask asking be provide state confirm report share send give tell look fill complete list name
    disclose reveal reply read quote indicate return show rank rate compare verify check respond answer supply need needed needs
    want wanted like love require request requests missing lack looking interested appreciate keen grateful may might can could
    wondering query question questions let what would will turn
    """.split()  # noqa: SIM905
)

# What its author says it cannot see, for a request beside it: "Ava on BLEU is unknown to me. Can you fill that in?"
GAP = re.compile(
    r"\b(?:unknown|missing|blanks?|gaps?|hidden|unseen|not visible|wish list|empty|no (?:scores?|values?|data|information|numbers?)|"
    r"(?:don't|do not|can't|cannot|can not) (?:\w+ )?(?:know|see|have)|differ in|not sure|unsure|need)\b"
)
# A request that points at what was named beside it
POINTS = re.compile(
    r"\b(?:each|these|those|them|both|it|that|there|all (?:three|four)|whatever you|yours|in points|known to you)\b|"
    r"^what (?:score|number|value|figure)\b"
)
# After it, names alone are the list that it asks about.
ANNOUNCES = re.compile(r"\b(?:need|from you|fill in|blanks|following|these|below|cells|pairs)\b")

_CELL = re.compile(
    r"^[^\w\n]*(?:(R\w+)\s*\|\s*(P\w+)|(P\w+)\s*\|\s*(R\w+))\s*\|\s*\?.*$",
    re.MULTILINE,
)
_MARK = re.compile(r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']|\ba \? ")


def request_at(text: str, words: list[str]) -> int | None:
    """Where in a clause of these words a request begins; None if there is none."""
    if _WORDS.isdisjoint(words):
        return None
    if words[-1] == "please" and (NAME.search(text) or _YOUR.search(text)) and not _PLACES.search(text):
        return 0
    found = ((pattern.search(text), follows) for pattern, follows in _REQUESTS)
    return min((match.start() for match, follows in found if match and follows(text[match.end() :])), default=None)


def spelled_out(text: str) -> str:
    """A masked text without marks that are no words: a table's row with a question mark for the score becomes the question that it
    is, and the numbers of points and a question mark that is spoken about go."""
    if "|" in text:
        text = _CELL.sub(lambda row: f"what is {row[1] or row[4]} on {row[2] or row[3]}?", text)
    return _MARK.sub("", text) if "(" in text or "?" in text else text
