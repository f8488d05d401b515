"""Requests for scores that are not worded as questions: "Please provide the score for ...", "I need your figure for ...", lists.

Models ask so more than people do. Patterns read the words of `reading.clauses.word_clauses`, as those of `rules` do.
"""

from __future__ import annotations

import re

from slim_rl.games.matching.reading.patterns import Vocabulary, pattern

_WORDS = Vocabulary(r"""
<who>       (?:R\w|\b(?:he|she|his|her|him|they|their|them)\b)
<pair>      (?=.*<who>)(?=.*P\w)
<score>     \b(?:scores?|values?|numbers?|figures?|ratings?|entry|entries|cells?|points|data|information|table|row|column
            pairs|things)\b
<scored>    (?:(?=.*<score>)|<pair>)
<any>       (?:<scored>|(?=.*\b(?:what(?:ever)? you|each|those|these|them)\b))
<plain>     (?! (?:\w+ ){0,3}(?:propos\w+|plan|assignment|accept\w*|agree\w*)\b| (?:that|if|whether)\b)
<tell>      (?:provide|state|confirm|report|share(?! P\w+ (?:between|among))|send|give (?=me|us|your|the|a)|tell|look up
            fill|complete|list|name|disclose|reveal|reply|read out|quote|indicate|return|show|rank|rate|compare|verify
            check|respond|answer|supply)\b<plain>
<first>     (?:^|(?<=[,:)-] )|then )
""")
# What a request begins with, and, looked ahead for, what has to follow in its clause.
_REQUEST = _WORDS.pattern(r"""\b(?=[a-z])(?:(?:please|kindly|(?:perhaps|maybe|hop(?:e|ed|ing)) you (?:could|can|would|might)|feel free to|ask you to|like you to
    be so kind as to) (?:also |just |now |kindly )?<tell><any>
    <first>(?!tell|check|show)<tell> (?!my|mine|i |i'll|us |it\b)<any>
    <first>(?:tell|show|give|send) me\b<plain>(?=[^,]*<who>)(?=[^,]*P\w)(?!.*\b(?:if|whether|when|that)\b)
    (?:may|might|can|could) i (?:ask (?:for|about)|know|have|get|see)\b<scored>
    (?:^(?:just )?wondering\b|(?:^|(?<=, ))(?:rank|rate|compare)\b
    (?:^|\bi'm |\bi am )requesting\b(?=.*<score>)
    ^(?:needed|needs?|wanted|requests?|query|questions?)\b(?: \w+)? :)(?=.*\b[RP]\d)
    (?:let me have\b
    (?:(?:i|we|i'm|i am|i was)(?: \w+)? (?:need|want|require|request|missing|lack|asking for|looking for|interested in
    keen on)|(?:i'd|i would|we'd|we would)(?: \w+)? (?:like|love|appreciate|be grateful for))\b(?! (?:someone
    to (?:put|keep|share|tell|give|assign|propose|place|move|pick|swap|go))))(?=.*<score>)(?:<pair>|(?=.*\byour?\b))
    (?<!you )(?:would|will|might) (?:be \w+|help(?: me)?(?: a lot)?) (?:to|if (?:i|you)(?: could)?) (?:(?:know|hear|see
    learn|tell|share)\b(?=.)|have\b(?=.*<score>))
    ^(?:(?:and|also|then|next|okay|so|the) )*(?:score|value|number|rating|affinity) (?:for|of|on|between)\b<pair>(?!.*(?:\b(?:is|was|are|were
    seems?|looks?|gets?)\b|[^RP\d]\d))
    what i(?: still)? (?:need|want|lack|am missing)\b|need(?:ed)? from you\b
    your turn to (?:tell|share|give)\b)""")
_ASKABLE = re.compile(r"\b(?:[RP]\d|your?\b)")
_PLACES = re.compile(r"\b(?:put|takes?|keep|gets?|go)\b")

# What its author says it cannot see, for a request beside it: "Ava on BLEU is unknown to me. Can you fill that in?"
GAP = pattern(r"""\b(?:unknown|missing|blanks?|gaps?|hidden|unseen|not visible|wish list|empty|no (?:scores?|values?
    data|information|numbers?)|(?:don't|do not|can't|cannot|can not) (?:\w+ )?(?:know|see|have)|differ in|not sure
    unsure|need)\b""")
# A request that points at what was named beside it
POINTS = pattern(r"""\b(?:each|these|those|them|both|it|that|there|all (?:three|four)|whatever you|yours|in points
    known to you)\b|^what (?:score|number|value|figure)\b""")
# After it, names alone are the list that it asks about.
ANNOUNCES = re.compile(r"\b(?:need|from you|fill in|blanks|following|these|below|cells|pairs)\b")

_CELL = re.compile(r"^[^\w\n]*(?:(R\w+)\s*\|\s*(P\w+)|(P\w+)\s*\|\s*(R\w+))\s*\|\s*\?.*$", re.MULTILINE)
_MARK = re.compile(r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']|\ba \? ")


def request_at(text: str) -> int | None:
    """Where in a clause a request begins; None if there is none."""
    if text.endswith(" please") and _ASKABLE.search(text) and not _PLACES.search(text):
        return 0
    request = _REQUEST.search(text)
    return request.start() if request else None


def spelled_out(text: str) -> str:
    """A masked text without marks that are no words: a table's row with a question mark for the score becomes the question that it
    is, and the numbers of points and a question mark that is spoken about go."""
    if "|" in text:
        text = _CELL.sub(lambda row: f"what is {row[1] or row[4]} on {row[2] or row[3]}?", text)
    return _MARK.sub("", text) if "(" in text or "?" in text else text
