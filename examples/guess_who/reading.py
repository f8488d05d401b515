"""Reader of questions and answers in free wording, shared by the game, the partners and the annotator.

a message asks if it has a question mark, or begins as a question or a request does
it is plain if it names exactly one trait or one character, and negates nothing where it does; any other question is open
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from examples.guess_who.board import Question
from examples.guess_who.traits import CHARACTERS, named_traits

READ_UP_TO = 2000  # characters of a message
_DECORATION = "*_`>#\"'\u201c\u201d \t\r\n-"  # what may stand around a tag: markdown, quotes
_TAG = re.compile(rf"[{_DECORATION}]*\[(\w+)\][*_`\s]*")
# Typographic quotation marks, what slants a word in markdown, and a question mark as Chinese and Japanese have it
_STRAIGHT = str.maketrans("\u2019\u2018_\uff1f", "'' ?")
_ASKS = re.compile(
    r"\s*(?:is|are|was|does|do|did|has|have|had|can|could|would|will|who|what|which|where|how|why|am|any)\b"
    r"|[^.!]*\b(?:tell me|i wonder|let me know|describe|i ask|show me|give me|(?:want|like) to know|my question is)\b",
    re.IGNORECASE,
)
# Whatever turns a question round: "free of glasses", "can I rule out Mara", "anyone but Mara", "hatless", "is it wrong that it has a hat".
_NEGATES = re.compile(
    r"n't\b|\b(?:not|no|non|never|none|nobody|without|w/o|sans|minus|neither|nor|lacks?|lacked|lacking|devoid|bereft|absent|absence|missing|free|bare"
    r"|dont|doesnt|isnt|hasnt|wont|cannot|rule[sd]?|ruling|exclud\w*|eliminat\w*|discard\w*|cross\w*|strike|dismiss\w*|drop\w*|remove[sd]?|removing"
    r"|out|but|except\w*|besides?|apart|aside|other|other than|else|instead|rather|unlike|different|opposite|contrary|against|den(?:y|ies)|doubt\w*|mistake\w*|refuse[sd]?"
    r"|avoid\w*|fail\w*|hardly|barely|scarcely|rarely|false|wrong|untrue|incorrect|mistaken|impossible|unlikely|safe to|clean-?shaven|bald|shaved"
    r"|used to|formerly|any ?more|stopped|took off|taken off|\w+less|un\w+ed)\b",
    re.IGNORECASE,
)
_OR_NOT = re.compile(r",? or (?:not|no)\b|\byes ?/ ?no\b", re.IGNORECASE)
_SENTENCE_ENDS = re.compile(r"[.!?]")
_NAMES = {name: re.compile(rf"\b{name}\b", re.IGNORECASE) for name in CHARACTERS}
_NOT_A_NO = r"(?! (?:idea|comment|clue|doubt|problem|question|worries))"
_YES = r"yes|yeah|yep|yup|correct(?! me)|right|true(?! or)|indeed(?! not)|so it (?:is|does|has)|it does|it is|it has"
_NO = (
    rf"no{_NOT_A_NO}|nope|nah|not|indeed not|false(?! or)|wrong|it does(?: not|n't)|it is(?: not|n't)|it has(?: no|n't)"
)
_FIRST = re.compile(rf"\W*(?:(?:that|this)(?: is|'s) )?(?:(?P<no>{_NO})|(?P<yes>{_YES}))\b", re.IGNORECASE)
_ANYWHERE = re.compile(rf"\b(yes|no)\b{_NOT_A_NO}", re.IGNORECASE)
_HEDGES = re.compile(
    r"\b(?:maybe|perhaps|possibly|possible|might|unsure|unclear|secret|depends|yes and no|no (?:idea|comment|clue)|"
    r"(?:hard|difficult|impossible) to (?:say|tell|know)|not (?:sure|certain|clear|exactly|really|quite|necessarily|that i)|"
    r"(?:not|\w+n't|never) say (?:yes|no)|"
    r"(?:do not|don't|cannot|can't|can not|could not|couldn't|won't|will not|would rather not) (?:know|say|tell|answer|share))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Message:
    """Question of a message: a plain `question`, an open one (`asks` without a question), or nothing."""

    asks: bool
    question: Question | None = None


def untagged(text: str) -> tuple[str, str]:
    """Returns a text's tag in lower case ("message" without one) and the rest of the text."""
    tag = _TAG.match(text)
    return (tag[1].lower(), text[tag.end() :].strip()) if tag else ("message", text.strip())


@lru_cache(maxsize=16384)
def read(text: str) -> Message:
    """Returns the question of a message, with or without its tag. Never raises."""
    tag, body = untagged(text[:READ_UP_TO])
    body = body.translate(_STRAIGHT)
    if tag != "message" or not ("?" in body or _ASKS.match(body)):
        return Message(False)
    body = _OR_NOT.sub("", body)
    about = mentioned(body)
    negated = any(_NEGATES.search(sentence) and mentioned(sentence) for sentence in _SENTENCE_ENDS.split(body))
    return Message(True, about[0] if len(about) == 1 and not negated else None)


def asks(text: str, game_state: Any = None) -> bool:
    """Returns True if a message seeks information; the same in every game."""
    return read(text).asks


def mentioned(text: str) -> list[Question]:
    """Returns the traits and characters that a text names."""
    traits: list[Question] = [("trait", trait) for trait in named_traits(text.translate(_STRAIGHT))]
    return traits + [("character", name) for name in named_characters(text)]


def named_characters(text: str) -> list[str]:
    """Returns the characters that a text names."""
    plain = text.translate(_STRAIGHT)
    return [name for name, pattern in _NAMES.items() if pattern.search(plain)]


def answer_of(text: str) -> bool | None:
    """Returns True for a yes, False for a no, None for any other answer. Never raises."""
    body = untagged(text[:READ_UP_TO])[1].translate(_STRAIGHT)
    if _HEDGES.search(body):
        return None
    if first := _FIRST.match(body):
        return first["yes"] is not None
    said = {word.lower() for word in _ANYWHERE.findall(body)}
    return said == {"yes"} if len(said) == 1 else None
