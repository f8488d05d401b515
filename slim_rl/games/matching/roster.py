"""Names of one game's reviewers and papers, and how free text is matched to them.

A name is never guessed: what could mean two people or papers names neither, and only a slip of one letter is forgiven.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from rapidfuzz.distance import OSA

from slim_rl.config.reading import read_yaml
from slim_rl.errors import ConfigError

Kind = Literal["reviewer", "paper"]
Meanings = tuple[tuple[Kind, int], ...]
Pair = tuple[int, int]  # (reviewer, paper)

_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_name("roster.yaml"))
REVIEWERS, PAPERS = tuple(_TABLE["reviewers"]), tuple(_TABLE["papers"])
_ALSO_CALLED: dict[str, str] = _TABLE["also_called"]
_NOT_NAMES, _GRAMMAR, PLAN_WORDS = (frozenset(_TABLE[name].split()) for name in ("not_names", "grammar", "plan_words"))
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*")  # an accent may follow its letter as a character of its own
_OWN_STOP = re.compile(r"\.[^\S\n]*[^\sA-Z]")  # the full stop of "Lee Jr.", where no sentence ends with it
_ENDS_A_LINE = re.compile(r"[;\r\n\v\f\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Mention:
    """Words at text[start:end] that name one of `meanings`, each (kind, index): several if they are ambiguous."""

    meanings: Meanings
    start: int
    end: int

    @property
    def kind(self) -> Kind:
        return self.meanings[0][0]

    @property
    def index(self) -> int:
        return self.meanings[0][1]


@dataclass(frozen=True)
class Roster:
    """Reviewers and papers of one game, in table order (rows, columns).

    Raises:
        ConfigError: names are missing, or two of them cannot be distinguished.
    """

    reviewers: tuple[str, ...] = REVIEWERS
    papers: tuple[str, ...] = PAPERS

    def __post_init__(self) -> None:
        if len(self.reviewers) != len(self.papers) or not self.reviewers:
            raise ConfigError(
                f"{len(self.reviewers)} reviewers and {len(self.papers)} papers are named; name as many of each."
            )
        known: dict[tuple[str, ...], Kind] = {}
        sides: tuple[tuple[Kind, tuple[str, ...]], ...] = (("reviewer", self.reviewers), ("paper", self.short_papers))
        for kind, names in sides:
            for name in names:
                key = _words(name)
                if all(map(str.isnumeric, key)):  # a score would be read as it
                    raise ConfigError(f"The {kind} name {name!r} has no letters; give it a name that has some.")
                if ends := _ENDS_A_LINE.search(name):
                    raise ConfigError(f"The {kind} name {name!r} has a {ends[0]!r}, which ends a plan's line; drop it.")
                if words := _GRAMMAR.intersection(_alone(kind, key)):
                    raise ConfigError(
                        f"The {kind} name {name!r} can be written as {min(words)!r}, which is a word of questions; write another name."
                    )
                if other := known.get(key):
                    both = f"Two {kind}s are" if other == kind else f"A {other} and a {kind} are both"
                    raise ConfigError(f"{both} called {name!r}; every name must differ before any colon.")
                known[key] = kind

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Returns the cached hash, since every reading of a message is looked up by its roster."""
        return hash((self.reviewers, self.papers))

    @classmethod
    @cache
    def default(cls, n: int = 8) -> "Roster":
        """Returns DialOp's first n reviewers and papers; for a larger n all eight."""
        return cls(REVIEWERS[:n], PAPERS[:n])

    @property
    def n(self) -> int:
        return len(self.reviewers)

    @cached_property
    def short_papers(self) -> tuple[str, ...]:
        """Returns each title up to its first colon."""
        return tuple(paper.split(":")[0].strip() for paper in self.papers)

    @cached_property
    def first_names(self) -> tuple[str, ...]:
        return tuple(name.split()[0] for name in self.reviewers)

    def name(self, kind: Kind, index: int) -> str:
        """Returns the full reviewer or the short paper."""
        return self.reviewers[index] if kind == "reviewer" else self.short_papers[index]

    def names(self, pair: Pair) -> tuple[str, str]:
        """Returns "Ava Li", "BLEU"."""
        return self.reviewers[pair[0]], self.short_papers[pair[1]]

    def pair(self, pair: Pair) -> str:
        """Returns "Ava Li on BLEU"."""
        return " on ".join(self.names(pair))

    def wholly(self, name: str, meanings: Meanings) -> Meanings:
        """Returns the meaning whose whole name it is, full reviewer or short paper; otherwise all meanings."""
        if len(meanings) < 2:
            return meanings
        return tuple(one for one in meanings if _words(self.name(*one)) == _words(name)) or meanings

    def find(self, text: str, typos: bool = True) -> list[Mention]:
        """Finds every reviewer and paper named in free text, in order.

        Full, first and last names, short and full titles, in any case; with `typos`, also a slip of one letter where it
        can mean only one of them. Ambiguous words name nobody.
        """
        return [mention for mention in self.hits(text, typos) if len(mention.meanings) == 1]

    def hits(self, text: str, typos: bool = False) -> Iterator[Mention]:
        """Finds names as `find` does, ambiguous ones included. The longest name that begins at a word wins."""
        matches = list(_WORD.finditer(text))
        words = [_fold(match.group()) for match in matches]
        at = 0
        while at < len(words):
            keys = (tuple(words[at : at + length]) for length in self._lengths.get(words[at], ()))
            key = next((key for key in keys if key in self._index), (words[at],))
            meanings = self._index.get(key) or (_near(self, words[at]) if typos else ())
            if meanings:
                end = matches[at + len(key) - 1].end()
                if len(meanings) == 1 and self.name(*meanings[0]).endswith(".") and _OWN_STOP.match(text, end):
                    end += 1
                yield Mention(meanings, matches[at].start(), end)
            at += len(key)

    @cached_property
    def _index(self) -> dict[tuple[str, ...], Meanings]:
        """Returns the possible meanings of each run of folded words."""
        index: dict[tuple[str, ...], set[tuple[Kind, int]]] = {}
        for i, name in enumerate(self.reviewers):
            words = _words(name)
            for key in (words, *((part,) for part in _alone("reviewer", words))):
                index.setdefault(key, set()).add(("reviewer", i))
        for i, title in enumerate(self.papers):
            index.setdefault(_words(title), set()).add(("paper", i))
        # A whole name or short title means its owner, even where it is also a part of another's of its kind.
        for i in range(self.n):
            index[_words(self.reviewers[i])] = {("reviewer", i)}
        for i, short_title in enumerate(self.short_papers):
            key = _words(short_title)
            index[key] = {("paper", i), *(meaning for meaning in index.get(key, ()) if meaning[0] == "reviewer")}
        return {key: tuple(sorted(meanings)) for key, meanings in index.items()}

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """Returns how many words the names that begin with a word have, the longest first."""
        lengths: dict[str, set[int]] = {}
        for key in self._index:
            lengths.setdefault(key[0], set()).add(len(key))
        return {word: sorted(counts, reverse=True) for word, counts in lengths.items()}


@lru_cache(maxsize=100_000)
def _near(roster: Roster, word: str) -> Meanings:
    """Returns the possible meanings of a word that is not a name, if one wrong letter is forgiven."""
    near = {m for key, meanings in roster._index.items() if len(key) == 1 and _slip(word, key[0]) for m in meanings}
    return tuple(sorted(near)) or roster._index.get((_ALSO_CALLED.get(word, ""),), ())


def _alone(kind: Kind, words: tuple[str, ...]) -> list[str]:
    """Returns the single words that name somebody: first and last name of a reviewer, a title of one word."""
    if kind == "paper":
        return [*words] if len(words) == 1 else []
    return [part for part in (words[0], words[-1]) if not part.isnumeric()]  # the 3 of "Reviewer 3" may be a score


def _fold(word: str) -> str:
    """Removes case and accents; a word of nothing else stays as it is."""
    if word.isascii():
        return word.lower()
    plain = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return plain.casefold() or word


def _words(name: str) -> tuple[str, ...]:
    return tuple(_fold(word) for word in _WORD.findall(name))


def _slip(word: str, name: str) -> bool:
    """Returns True if `word` is `name` with one typing error.

    The first letter is the same, and one letter is added, swapped with its neighbour or (in names of five letters or more, where few
    English words are that near) replaced or dropped.
    """
    if word[0] != name[0] or abs(len(word) - len(name)) > 1 or word in _NOT_NAMES:
        return False
    if len(name) < 5:
        added = len(word) == len(name) + 1
        swapped = sorted(word) == sorted(name)
        return (
            word == name + "s" and len(name) == 3
            if len(name) < 4
            else (added or swapped) and OSA.distance(word, name) == 1
        )
    return word.replace("ph", "f") == name.replace("ph", "f") or OSA.distance(word, name, score_cutoff=1) == 1
