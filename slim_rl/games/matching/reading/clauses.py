"""The sentences of a masked message, each with whether a question mark closes it.

What is written over several lines is put together: a list with what introduces it, and a line that only continues the one
before. Both sets of rules cut sentences further, each at its own places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

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
    on for at with in to and or the a of s vs versus about as regarding concerning regards respect between among looking speaking
    paper papers reviewer reviewers column row score scores value values number numbers rating pair pairs both then plus respectively doing
    your yours his her same too also next now please pls maybe one more question ok okay great thanks so hi hello hey all right
    """.split()  # noqa: SIM905
)


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Returns the sentences of a masked text, in order. Never raises."""
    for line in _joined_lines(text):
        for sentence in _SENTENCE.finditer(line):
            yield sentence[0].strip(" \t.?!"), "?" in sentence[1]


def words(clause: str) -> str:
    """Returns the words of a clause with single spaces.

    Commas and dashes are words, a possessive's s is off a name, and a repeated word stands once.
    """
    tokens = _TOKEN.findall(clause.translate(_DASH))
    return " ".join(word for word, _ in groupby(t.removesuffix("'s") if NAME.match(t) else t for t in tokens))


def _joined_lines(text: str) -> list[str]:
    """Returns the lines without bullets, joined to the line before if they continue it.

    A line continues if a colon introduces it, if it goes with such a list (as a bullet, or naming only), or if it begins with a preposition.
    """
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
            lines[-1] += f" {line}"
        elif listed:
            lines[-1] = f"{last.rstrip(' .,;')}, {line}"
        else:
            lines.append(line)
    return lines


def is_bare(text: str) -> bool:
    """Returns True if a clause only names somebody: "R0 on P0", "for the P3 paper"."""
    return bool(NAME.search(text)) and all(word in _BARE_WORDS or NAME.fullmatch(word) for word in _WORD.findall(text))
