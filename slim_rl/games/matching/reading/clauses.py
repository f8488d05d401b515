"""The sentences of a masked message, each with whether a question mark closes it.

What is written over several lines is put together: a list with what introduces it, and a line that only continues the one
before. Both sets of rules cut sentences further, each at its own places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from slim_rl.games.matching.reading.masking import NAME

_ITEM = re.compile(r"\s*(?:[-*\u2022\u2013]+|\(?\d{1,2}[.)](?!\d))\s+")
_CARRIES_ON = re.compile(r"(?:on|for|at|with|in|vs|than|of)\b|[?!. ]+$")
# A full stop between digits is a decimal point, and the one of "vs." ends nothing.
_SENTENCE = re.compile(r"(?:[^.?!]|(?<=\d)\.(?=\d)|(?<=\bvs)\.)+([.?!]*)")
_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"[RP]_|[^\W_]+(?:'[^\W_]+)*|[,:()#-]")
_DASH = str.maketrans({"\u2013": "-", "\u2014": "-"})
_BARE_WORDS = frozenset(
    """
    on for at with in to and or the a of s vs versus about as regarding concerning paper papers reviewer reviewers score
    scores value values pair pairs both then plus respectively doing
    """.split()  # noqa: SIM905
)
_AND_FOR = re.compile(r"(?:(?:what|how) about|and|or|also|then)\b")
_LIST = re.compile(r"\b(?:these|those|following|below|(?:this|that) pair)\b|\b(?:for|on|about)$")


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a masked text, in order. Never raises."""
    for line in _joined_lines(text):
        for sentence in _SENTENCE.finditer(line):
            yield sentence[0].strip(" \t.?!"), "?" in sentence[1]


@lru_cache(maxsize=4096)  # a message is read as a question, as a reply, and as what a question leaves out
def word_clauses(text: str) -> tuple[tuple[str, bool], ...]:
    """The sentences of a masked text, cut at semicolons too, as words with single spaces: commas and dashes are words of their
    own, a possessive's s is off a name, and a word said twice in a row stands once."""
    found: list[tuple[str, bool]] = []
    for sentence, marked in sentences(text):
        parts = sentence.translate(_DASH).split(";")
        *others, last = (" ".join(_said_once(_TOKEN.findall(part))) for part in parts)
        found += ((clause, False) for clause in others if clause)
        if last:
            found.append((last, marked))
    return tuple(found)


def _said_once(words: list[str]) -> Iterator[str]:
    before = ""
    for word in words:
        if NAME.match(word):
            word = word.removesuffix("'s")
        if word != before:
            yield word
        before = word


def _joined_lines(text: str) -> list[str]:
    """Lines without their bullets. A line is joined to the one before if a colon introduces it, if it continues with such
    a list (as a bullet, or naming only), or if it begins with a preposition."""
    lines: list[list[str]] = []
    listed = False
    for raw in text.split("\n"):
        item = _ITEM.match(raw)
        line = (raw[item.end() :] if item else raw).strip()
        if not line:
            continue
        last = lines[-1][-1] if lines else "."
        introduced = last.endswith(":")
        listed = introduced or (listed and (item is not None or is_bare(line)))
        if introduced or (last[-1] not in ".?!" and _CARRIES_ON.match(line)):
            lines[-1].append(f" {line}")
        elif listed:
            lines[-1][-1] = last.rstrip(" .,;")
            lines[-1].append(f", {line}")
        else:
            lines.append([line])
    return ["".join(line) for line in lines]


def is_bare(text: str) -> bool:
    """Whether a clause names somebody and says nothing else: "R0 on P0", "for the P3 paper"."""
    return bool(NAME.search(text)) and all(word in _BARE_WORDS or NAME.fullmatch(word) for word in _WORD.findall(text))


def goes_on(text: str, marked: bool) -> bool:
    """Whether a clause after a question only names, and so continues it: "and on P3?"."""
    rest = _AND_FOR.sub("", text, count=1).strip()
    return is_bare(rest) and (marked or rest != text)


def announces_list(text: str) -> bool:
    """Whether a clause names nobody yet, and a list is to follow: "what do you have for these pairs"."""
    return not NAME.search(text) and _LIST.search(text) is not None
