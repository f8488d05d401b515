"""Text with names as tokens, in sentences: "R3" is a reviewer, "P5" a paper; no other capitals are left.

Everyday misspellings are corrected. Patterns written for masked text hold for any roster.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from slim_rl.games.matching.reading.wording import BARE, SPELLINGS
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
_ROW = re.compile(r"\bR\d+: P\d+ (?:\d[\d.]*|[?-])\*?(?:, P\d+ (?:\d[\d.]*|[?-])\*?)+")
_ITEM = re.compile(r"\s*(?:[-*\u2022\u2013]+|\(?\d{1,2}[.)](?!\d))\s+")
_CARRIES_ON = re.compile(r"(?:on|for|at|with|in|vs|than|of)\b|[?!. ]+$")
# A full stop between digits is a decimal point, and the one of "vs." ends nothing.
_SENTENCE = re.compile(r"(?:[^.?!]|(?<=\d)\.(?=\d)|(?<=\bvs)\.)+([.?!]*)")
_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[,:()#-]")
_DASH = str.maketrans({"\u2013": "-", "\u2014": "-"})


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
    text = _ROW.sub(_without_marks, _WORD.sub(_spelled, "".join([*pieces, _lowered(text[end:])])))
    return _SLASH.sub(lambda match: match["pair"] or "\n", text)


def _without_marks(row: re.Match[str]) -> str:
    """Returns a row of a table in which "?" next to scores does not ask."""
    return row[0].replace("?", "unknown") if re.search(r"P\d+ \d", row[0]) else row[0]


def _lowered(text: str) -> str:
    """Returns text between names in lower case, so that nothing in it is taken for a token."""
    return _LOOKS_LIKE_TOKEN.sub(lambda match: match[0].lower(), text)


def _spelled(match: re.Match[str]) -> str:
    word, lower = match[0], match[0].lower()
    return word if NAME.match(word) else SPELLINGS.get(lower, lower)


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Returns the sentences of a masked text, in order, each with whether a question mark closes it. Never raises."""
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
    return bool(NAME.search(text)) and all(word in BARE or NAME.fullmatch(word) for word in _WORD.findall(text))
