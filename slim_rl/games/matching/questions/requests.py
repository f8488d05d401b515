"""Requests for scores that are not worded as questions: "Please provide the score for ...", "I need your figure for ...", lists.

Models ask so more than people do. Patterns read the words of `reading.clauses.word_clauses`, as those of `rules` do.
"""

from __future__ import annotations

import re

_SCORE = r"\b(?:scores?|values?|numbers?|figures?|ratings?|entry|entries|cells?|points|data|information|table|row|column|pairs)\b"
_REVIEWER = r"(?:R\w+|\b(?:he|she|his|her|him|they|their|them)\b)"
_PAIR = rf"{_REVIEWER}.*P\w|P\w.*{_REVIEWER}"
_WHAT = rf"(?=.*(?:{_SCORE}|{_PAIR}|\bwhat(?:ever)? you\b|\b(?:each|those|these|them)\b))"
_NO_PLAN = r"(?! (?:\w+ ){0,3}(?:propos\w+|plan|assignment)\b| (?:that|if|whether)\b)"
_VERB = (
    r"(?:provide|state|confirm|report|share|send|give|tell|look up|fill|complete|list|name|disclose|reveal|reply|read out|quote|"
    r"indicate|return|show|rank|rate|compare|verify|check|respond|answer|supply)\b"
)
_WANT = r"(?:need|want|like|love|require|request|missing|lack|asking for|looking for|interested in|appreciate|keen on|grateful for)\b"

REQUEST = re.compile(
    "|".join(
        (
            rf"\b(?:please|kindly|(?:perhaps|maybe) you (?:could|can)|feel free to|ask you to|like you to|be so kind as to) "
            rf"(?:also |just |now |kindly )?{_VERB}{_NO_PLAN}{_WHAT}",
            rf"(?<![^,:)-] )(?<!\w)(?!tell|check|show){_VERB} (?!my|mine|i |i'll|us |it\b){_NO_PLAN}(?=.*(?:{_SCORE}|{_PAIR}|\bwhat(?:ever)? you (?:see|have|know)\b))",
            rf"(?:^|(?<=[,:)-] )|\bthen )(?:tell|show|give|send) me (?=[^,]*(?:{_PAIR}))(?!.*\b(?:if|whether|when|that)\b)",
            rf"\b(?:may|might|can|could) i (?:ask (?:for|about)|know|have|get|see)\b(?=.*(?:{_SCORE}|{_PAIR}))",
            r"^(?:just )?wondering\b(?=.*[RP]\d)",
            r"(?:^|(?<=, ))(?:rank|rate|compare)\b(?=.*[RP]\d)",
            rf"\b(?:i|we|i'd|i'm|i am|i was)(?: \w+)? {_WANT}(?! (?:someone|to (?:put|keep|share|tell|give|assign)))"
            rf"(?=.*(?:{_SCORE}|\bthings\b))(?=.*(?:{_PAIR}|\byour?\b))",
            r"\bwhat i(?: still)? (?:need|want|lack|am missing)\b|\bneed(?:ed)? from you\b",
            r"\b(?:would|will|might) (?:be \w+|help(?: me)?(?: a lot)?) (?:to|if (?:i|you)(?: could)?) (?:know|hear|have|see|learn|tell|share)\b",
            rf"\blet me have\b(?=.*{_SCORE})",
            r"^(?:needed|needs?|wanted|requests?|query|questions?)\b(?: \w+)? :(?=.*[RP]\w)",
            r"\byour turn to (?:tell|share|give)\b",
            r"^(?!.*\b(?:put|takes?|keep|gets?|go)\b)(?=.*(?:[RP]\w|\byour\b)).* please$",
        )
    )
)
# What its author says it cannot see, for a request beside it: "Ava on BLEU is unknown to me. Can you fill that in?"
GAP = re.compile(
    r"\b(?:unknown|missing|blanks?|gaps?|hidden|unseen|not visible|wish list|empty|no (?:scores?|values?|data|information|numbers?)|"
    r"(?:don't|do not|can't|cannot|can not) (?:\w+ )?(?:know|see|have)|differ in|not sure|unsure|need)\b"
)
# A request that points at what was named beside it, by one word for it or by asking for the score of nobody
POINTS = re.compile(
    r"\b(?:each|these|those|them|both|it|that|there|all (?:three|four)|whatever you|yours|in points|known to you)\b|"
    r"^what (?:score|number|value|figure)\b"
)
# After it, names alone are the list that it asks about.
ANNOUNCES = re.compile(r"\b(?:need|from you|fill in|blanks|following|these|below|cells|pairs)\b")

_CELL = re.compile(r"^\W*(R\w+)\s*\|\s*(P\w+)\s*\|\s*\?.*$|^\W*(P\w+)\s*\|\s*(R\w+)\s*\|\s*\?.*$", re.MULTILINE)
_MARK = re.compile(r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']|\ba \? ")


def spelled_out(text: str) -> str:
    """A masked text without marks that are no words: a table's row with a question mark for the score becomes the question that it
    is, and the numbers of points and a question mark that is spoken about go."""
    if "|" in text:
        text = _CELL.sub(lambda row: f"what is {row[1] or row[4]} on {row[2] or row[3]}?", text)
    return _MARK.sub("", text) if "(" in text or "?" in text else text
