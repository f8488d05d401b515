"""Test of a message's form: whether it is a sentence. Only what nobody writes by choice is malformed:

a word or a group of up to three words twice in a row ("for for", "what is what is", "BLEU: BLEU")
two prepositions before a name, or a name next to itself ("on for BLEU", "Ava on Ava")
pairs of names with nothing between them ("Ava BLEU Noah SWAG")
control tokens of a chat template, or three empty lines in a row
"""

from __future__ import annotations

import re

from slim_rl.games.matching.reading.masking import mask, untagged
from slim_rl.games.matching.roster import Roster

# Said twice by people too: "no no", "very very good", "I know that that is high".
_MAY_REPEAT = frozenset(
    """
    a blah bye cool far go ha had haha hah he hello hey hi hmm hm just lol long many more much no not now oh ok okay please pretty
    really so super sure thanks that very wait way well yes yay
    """.split()  # noqa: SIM905
)
_SPACES = re.compile(r"[^\S\n]+")
_TWICE = re.compile(r"(?<![\w'])([^\W_]+(?:'\w+)?(?: [^\W_]+(?:'\w+)?){0,2}):? \1(?![\w'])")
_PREPOSITION = r"(?:on|for|at)"
_GARBLED = re.compile(
    rf"\b{_PREPOSITION}(?: the)? {_PREPOSITION}(?: the)? [RP]\d"
    rf"|\b([RP]\d+) (?:(?:{_PREPOSITION}|the|is) )+\1\b"
    r"|\bR\d+ P\d+ R\d+ P\d|\bP\d+ R\d+ P\d+ R\d"
)
_CONTROL = re.compile(r"<\|\w+\|>|</?(?:s|bos|eos)>|\n{4}")


def is_malformed(text: str, roster: Roster) -> bool:
    """Returns True if a message, with or without its tag, is no sentence. "Ava on BLEU?" is one. Never raises."""
    tag, body = untagged(text)
    if tag in ("propose", "accept"):
        return False
    if _CONTROL.search(body) or _GARBLED.search(mask(body, roster)):
        return True
    return _says_twice(body) and _says_twice(_with_names_as_words(body, roster))


def _says_twice(text: str) -> bool:
    return any(match[1] not in _MAY_REPEAT for match in _TWICE.finditer(_SPACES.sub(" ", text.lower())))


def _with_names_as_words(text: str, roster: Roster) -> str:
    """Returns the text with each title, and each name that repeats a word ("Li Li"), as one word.

    So "on On the Dangers" repeats nothing.
    """
    parts, end = [], 0
    for mention in roster.find(text):
        name = text[mention.start : mention.end]
        one = mention.kind == "paper" or _says_twice(name)
        parts += [text[end : mention.start], re.sub(r"\W", "", name) if one else name]
        end = mention.end
    return "".join((*parts, text[end:]))
