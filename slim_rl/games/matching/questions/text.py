"""Chat text as the rules of `classify` and `pairs` read it: lower case, names replaced by tokens, cut into clauses.

A reviewer becomes ``R3`` and a paper ``P5`` (indices in the roster); these are the only capitals that remain. A word that is
written like a name but is not in the roster becomes ``R_``, or ``P_`` after a preposition. Reading never raises, and depends on
the text and the roster alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.roster import Roster


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of text up to a full stop, a question mark, a slash or a line end.

    Attributes:
        text: normalised words with single spaces; commas and dashes are words of their own.
        asks: whether a question mark closes it.
    """

    text: str
    asks: bool


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|(?<!\S)/|/(?!\S)|(?<!\bvs)\.|[?!;,:\n()#-]")
_TAG = re.compile(r"\s*\[\s*\w+\s*\]")
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "`": "'", "_": " "})
_ENDS = frozenset("?!.;/\n")
# A line that starts so carries on the line before: "is Ava good / at QuAC or Electra".
_CARRIES_ON = frozenset({"at", "on", "for", "with", "in", "than", "of"})

_SPELLINGS = {
    "whats": "what's", "hows": "how's", "whos": "who's", "wheres": "where's", "dont": "don't", "doesnt": "doesn't",
    "cant": "can't", "isnt": "isn't", "arent": "aren't", "youre": "your", "ur": "your", "u": "you", "r": "are",
    "thats": "that's", "theres": "there's", "lets": "let's", "im": "i'm", "ive": "i've", "ill": "i'll", "il": "i'll",
    "havent": "haven't", "didnt": "didn't", "lemme": "let me", "gimme": "give me", "pls": "please", "plz": "please",
    "wat": "what", "hes": "he's", "shes": "she's", "choise": "choice", "thoughs": "thoughts", "canwe": "can we",
    "wanna": "want to", "gonna": "going to", "okays": "okay", "okay's": "okay", "ya": "you", "ok": "okay", "k": "okay",
    "alright": "okay", "alrighty": "okay", "yup": "yes", "yep": "yes", "yeah": "yes", "yea": "yes", "anybody": "anyone",
    "somebody": "someone", "everybody": "everyone", "abt": "about", "info": "information", "infos": "information",
    "tho": "though", "cuz": "because", "cause": "because", "aight": "okay", "theyre": "they're", "versus": "vs",
    "bets": "best", "doe": "does",
}  # fmt: skip

# Everyday words one slip away from a name of DialOp's roster; never read as that name.
_NOT_NAMES = frozenset(
    """
    swap swam sway stag swan snag clue clues love gloves clove globe sofa organ than panel pastel petal lame
    lamb flag
    """.split()  # noqa: SIM905
)
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
_PREPOSITIONS = frozenset({"on", "for", "at", "to", "in", "with", "onto"})
_MEMO = 100_000  # words


class Names:
    """Which words name whom in one roster. Memoises every word it has seen, up to a bound."""

    def __init__(self, roster: Roster) -> None:
        found: dict[str, set[str]] = {}
        for letter, names in (("R", roster.reviewers), ("P", roster.short_papers)):
            for index, name in enumerate(names):
                for word in _WORD.findall(name.lower()):
                    if word.isalnum() and len(word) > 1:
                        found.setdefault(word, set()).add(f"{letter}{index}")
        self._exact = {word: tokens.pop() for word, tokens in found.items() if len(tokens) == 1}
        self._close = [
            (word, token) for word, token in self._exact.items() if len(word) >= (4 if token[0] == "P" else 5)
        ]
        for spelling, name in (("blue", "bleu"), ("bert", "roberta")):
            if name in self._exact:
                self._exact.setdefault(spelling, self._exact[name])
        # Names without a word of their own ("Reviewer 1") are found by the roster, and stood in for by made-up words.
        self._stand_ins: dict[tuple[str, int], str] = {}
        named = set(self._exact.values())
        for kind, index in ((kind, index) for kind in ("reviewer", "paper") for index in range(roster.n)):
            token = f"{kind[0].upper()}{index}"
            if token not in named:
                self._stand_ins[kind, index] = f"zq{token.lower()}qz"
                self._exact[f"zq{token.lower()}qz"] = token
        self._roster = roster
        self._memo: dict[str, str | None] = {}
        self.plain: dict[str, str] = {}  # lower-case words as `clauses` reads them, wherever they stand
        titles = zip(roster.papers, roster.short_papers, strict=True)
        self._titles = {title.partition(":")[2].strip().lower(): short for title, short in titles if ":" in title}
        self._titles.pop("", None)
        pattern = "|".join(re.escape(title) for title in sorted(self._titles, key=len, reverse=True))
        self._title = re.compile(pattern, re.IGNORECASE) if pattern else None

    def shorten(self, text: str) -> str:
        """The text with what follows the colon of a full title replaced by the short title, and names by their stand-ins."""
        if self._stand_ins:
            for mention in reversed(self._roster.find(text, typos=False)):
                if stand_in := self._stand_ins.get((mention.kind, mention.index)):
                    text = f"{text[: mention.start]} {stand_in} {text[mention.end :]}"
        lower = text.lower()
        if self._title is None or not any(title in lower for title in self._titles):
            return text
        return self._title.sub(lambda match: f" {self._titles.get(match[0].lower(), match[0])} ", text)

    def token(self, word: str) -> str | None:
        """The token of one lower-case word, or None if it is no name; a possessive's s may be on it."""
        if word in self._memo:
            return self._memo[word]
        token = self._find(word)
        if len(self._memo) < _MEMO:
            self._memo[word] = token
        return token

    def _find(self, word: str) -> str | None:
        stems = [word] + (
            [word.removesuffix("'s")] if word.endswith("'s") else [word[:-1]] if word.endswith("s") else []
        )
        for stem in stems:
            if stem in self._exact:
                return self._exact[stem]
        for stem in stems:
            if len(stem) >= 4 and stem.isalpha() and stem not in _NOT_NAMES and stem not in _SPELLINGS:
                near = {token for name, token in self._close if _one_slip(stem, name)}
                if len(near) == 1:
                    return near.pop()
                if near and len({token[0] for token in near}) == 1:
                    return f"{near.pop()[0]}_"
        return None


def clauses(text: str, names: Names) -> tuple[Clause, ...]:
    """The clauses of a message, its action tag taken off. A line that only carries the one before on is joined to it."""
    text = _TAG.sub("", text, count=1) if text.lstrip()[:1] == "[" else text
    out: list[Clause] = []
    words: list[str] = []
    end = "."  # what closed the clause before
    for raw in _WORD.findall(names.shorten(text).translate(_STRAIGHT)):
        if raw not in _ENDS:
            token = names.plain.get(raw) or _token(raw, words, names)
            if token in _CARRIES_ON and not words and out and end in "/\n" and not out[-1].asks:
                words = [out.pop().text]
            if not words or words[-1] != token:
                words.append(token)
            continue
        if words:
            if raw == "?" and end == "/" and out and _completes(out[-1].text, words):  # "any score for Sofia / QuAC?"
                words.insert(0, out.pop().text)
            out.append(Clause(" ".join(words), raw == "?"))
            words = []
        elif raw == "?" and out:  # "Ava for BLEU / ?", "really!?"
            out[-1] = Clause(out[-1].text, True)
        end = raw
    if words:
        out.append(Clause(" ".join(words), False))
    return tuple(out)


def _token(raw: str, words: list[str], names: Names) -> str:
    """What stands for one word, given those before it in its clause."""
    lower = raw.lower()
    token = names.token(lower)
    if token is not None:
        return token
    if lower in _SPELLINGS:
        return _SPELLINGS[lower]
    if words and raw[0].isupper() and raw[1:].isalpha() and raw[1:].islower() and lower not in _EVERYDAY:
        return "P_" if words[-1] in _PREPOSITIONS else "R_"
    if raw == lower and len(names.plain) < _MEMO:
        names.plain[raw] = lower
    return lower


def _completes(line: str, words: list[str]) -> bool:
    """Whether the words are one name that makes a pair with the name that ends the line."""
    last = line.rpartition(" ")[2]
    return len(words) == 1 and {words[0][0], last[0]} == {"R", "P"}


@lru_cache(maxsize=64)
def names_of(roster: Roster | None) -> Names:
    """The names of a roster; DialOp's own if None."""
    return Names(roster if roster is not None else Roster.default(8))


def _one_slip(a: str, b: str) -> bool:
    """Whether one letter added, dropped, changed, or two neighbours swapped, makes b of a (two for long words)."""
    if a[0] != b[0] and a[1:] != b[1:]:
        return False
    return _distance(a, b) <= (2 if len(b) >= 6 and len(a) >= 6 else 1)


def _distance(a: str, b: str) -> int:
    """Edit distance with neighbouring swaps (optimal string alignment)."""
    if abs(len(a) - len(b)) > 2:
        return 3
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
