"""Masking of names: "R3" is a reviewer, "P5" a paper of the roster, and no other capitals are left.

A capitalised word within a sentence that the roster does not know becomes "R_", or "P_" after a preposition: an unknown name.
Everyday misspellings are corrected. Patterns written for masked text hold for any roster.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slim_rl.games.matching.roster import Roster

READ_UP_TO = 4000  # characters of a message, its tag included, that are read for names, questions and values
NAME = re.compile(r"\b([RP])(\d+)")

_TAG = re.compile(r"[^\w\[]*\[\s*(\w+)\s*\]")
_BREAK = re.compile(r"<br\s*(?:/\s*)?>|\r\n?|[\v\f\x85\u2028\u2029]", re.IGNORECASE)
_SPACES = re.compile(r"[^\S\n]+")
# Quotation marks, and punctuation as Chinese and Japanese have it
_STRAIGHT = str.maketrans("\u2019\u2018\u02bc`_\uff1f\uff01\u3002\uff0c\uff1a\uff1b\uff08\uff09", "'''' ?!.,:;()")
_LOOKS_LIKE_TOKEN = re.compile(r"\b[RP]\d")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# "Sofia / QuAC" is a pair; any other slash between spaces stands between lines.
_SLASH = re.compile(r"(?P<pair>\b([RP])\d+ / (?!\2)[RP]\d+(?= *[?.\n/-]| *$))|\s/(?:\s|$)")

# A row of a player's table, as it is shown to it
_ROW = re.compile(r"(?m)^\W*R\d+: P\d+ (?:\d[\d.]*|[?-])\*?(?:, P\d+ (?:\d[\d.]*|[?-])\*?)+")

_SPELLINGS = {
    "whats": "what's", "hows": "how's", "whos": "who's", "wheres": "where's", "dont": "don't", "doesnt": "doesn't",
    "cant": "can't", "isnt": "isn't", "arent": "aren't", "youre": "your", "ur": "your", "u": "you", "r": "are",
    "thats": "that's", "theres": "there's", "lets": "let's", "im": "i'm", "ive": "i've", "ill": "i'll", "il": "i'll",
    "havent": "haven't", "didnt": "didn't", "lemme": "let me", "gimme": "give me", "pls": "please", "plz": "please",
    "wat": "what", "wats": "what's", "hes": "he's", "shes": "she's", "choise": "choice", "thoughs": "thoughts", "canwe": "can we",
    "wanna": "want to", "gonna": "going to", "okays": "okay", "okay's": "okay", "ya": "you", "ok": "okay", "k": "okay",
    "alright": "okay", "alrighty": "okay", "yup": "yes", "yep": "yes", "yeah": "yes", "yea": "yes", "anybody": "anyone",
    "somebody": "someone", "everybody": "everyone", "abt": "about", "info": "information", "infos": "information",
    "tho": "though", "cuz": "because", "cause": "because", "aight": "okay", "theyre": "they're", "versus": "vs",
    "bets": "best", "doe": "does",
}  # fmt: skip
# Words that a capital within a sentence does not make a name.
_EVERYDAY = frozenset(
    """
    i a an the and but or so if then that this these those it you your we our my me he she they them her him
    his their who what which where when why how is are was were be do does did have has had can could will
    would should shall may might must not no yes okay sure please thanks thank great good bad best hi hello
    hey on for at in to of with by from as about any anything anyone all also too just let maybe think
    thinking see know tell give share send does got get put move swap lock score scores reviewer reviewers
    paper papers information board table proposal plan idea sounds sound works work looks look one two first
    second next ps lol haha ah oh um hmm well now ready done dark light green red blank
    """.split()  # noqa: SIM905
)
_PREPOSITION = re.compile(r"\b(?:on|for|at|to|in|with|onto) $", re.IGNORECASE)


def untagged(text: str) -> tuple[str | None, str]:
    """Splits a message into the word in its action tag, in lower case (None without a tag), and the rest."""
    text = text[:READ_UP_TO]
    tag = _TAG.match(text)
    return (tag[1].lower(), text[tag.end() :]) if tag else (None, text)


def body(text: str, roster: Roster) -> str:
    """Returns a message without its action tag, masked. Never raises."""
    return mask(untagged(text)[1], roster)


@lru_cache(maxsize=4096)
def mask(text: str, roster: Roster) -> str:
    """Returns the first `READ_UP_TO` characters of a text, masked. Never raises."""
    text = _SPACES.sub(" ", _BREAK.sub("\n", text[:READ_UP_TO])).translate(_STRAIGHT)
    pieces, end = [], 0
    for mention in roster.find(text):
        pieces += [_lowered(text[end : mention.start]), f"{'R' if mention.kind == 'reviewer' else 'P'}{mention.index}"]
        end = mention.end
    text = _ROW.sub(_without_marks, "".join([*pieces, _lowered(text[end:])]))
    return _SLASH.sub(lambda match: match["pair"] or "\n", _WORD.sub(_spelled, text))


def _without_marks(row: re.Match[str]) -> str:
    """Returns a row of a table in which "?" next to scores does not ask."""
    return row[0].replace("?", "unknown") if re.search(r"P\d+ \d", row[0]) else row[0]


def _lowered(text: str) -> str:
    """Returns text between names in lower case, so that nothing in it is taken for a token."""
    return _LOOKS_LIKE_TOKEN.sub(lambda match: match[0].lower(), text)


def _spelled(match: re.Match[str]) -> str:
    word, lower = match[0], match[0].lower()
    if NAME.match(word):
        return word
    if lower in _SPELLINGS:
        return _SPELLINGS[lower]
    if word[0].isupper() and word[1:].isalpha() and word[1:].islower() and lower not in _EVERYDAY:
        before = match.string[max(0, match.start() - 6) : match.start()]
        if before.rstrip(" ,-:(")[-1:].isalnum() and "\n" not in before[-2:]:
            return "P_" if _PREPOSITION.search(before) else "R_"
    return lower
