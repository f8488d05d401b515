"""Names belong to a game, not to the code: a `Roster` holds those of one game and finds them in free text.

A name is never guessed: what could mean two people or papers names neither, and only a slip of one letter is forgiven.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from slim_rl.errors import ConfigError

Kind = Literal["reviewer", "paper"]

REVIEWERS = (
    "Ava Li",
    "Daniel Nguyen",
    "Sofia Patel",
    "Andrei Petrov",
    "Morgan Reed",
    "Joseph Santos",
    "Ethan Smith",
    "Noah Wilson",
)
PAPERS = (
    "BLEU: a Method for Automatic Evaluation of MT",
    "Electra: Pre-training Text Encoders as Discriminators",
    "GloVe: Global Vectors for Word Representation",
    "GLUE: A Multi-Task Benchmark and Analysis Platform for NLU",
    "LLaMA: Open and Efficient Foundation Language Models",
    "RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    "QuAC: Question Answering in Context",
    "SWAG: An Adversarial Dataset for Commonsense Inference",
)

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Mention:
    """One reviewer or paper named in a text, at text[start:end]."""

    kind: Kind
    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hit:
    """Words at text[start:end] that name one of `meanings`, each (kind, index): several if they are ambiguous."""

    meanings: tuple[tuple[Kind, int], ...]
    start: int
    end: int


@dataclass(frozen=True)
class Roster:
    """The reviewers and papers of one game, in table order (rows, columns).

    Raises:
        ConfigError: names are missing, or two of them cannot be told apart.
    """

    reviewers: tuple[str, ...] = REVIEWERS
    papers: tuple[str, ...] = PAPERS

    def __post_init__(self) -> None:
        if len(self.reviewers) != len(self.papers) or not self.reviewers:
            raise ConfigError(
                f"A roster needs as many reviewers as papers, but has {len(self.reviewers)} and {len(self.papers)}."
            )
        for kind, names in (("reviewer", self.reviewers), ("paper", self.short_papers)):
            keys = [_words(name) for name in names]
            for name, key in zip(names, keys, strict=True):
                if not key:
                    raise ConfigError(f"The {kind} name {name!r} has no letters or digits; give it a name.")
                if keys.count(key) > 1:
                    raise ConfigError(f"Two {kind}s are called {name!r}; every name must differ before any colon.")

    @classmethod
    def default(cls, n: int = 8) -> Roster:
        """DialOp's first n reviewers and papers, n at most 8."""
        if not 1 <= n <= len(REVIEWERS):
            raise ConfigError(
                f"DialOp's roster has names for n from 1 to {len(REVIEWERS)}, not {n}: give your own names."
            )
        return cls(REVIEWERS[:n], PAPERS[:n])

    @property
    def n(self) -> int:
        return len(self.reviewers)

    @cached_property
    def short_papers(self) -> tuple[str, ...]:
        """Each title up to its first colon."""
        return tuple(paper.split(":")[0].strip() for paper in self.papers)

    @cached_property
    def first_names(self) -> tuple[str, ...]:
        return tuple(name.split()[0] for name in self.reviewers)

    def name(self, kind: Kind, index: int) -> str:
        """The full reviewer or the short paper."""
        return self.reviewers[index] if kind == "reviewer" else self.short_papers[index]

    def find(self, text: str, typos: bool = True) -> list[Mention]:
        """Every reviewer and paper named in free text, in order.

        Full, first and last names, short and full titles, in any case; with `typos`, also a slip of one letter where it
        can mean only one of them. Ambiguous words name nobody.
        """
        return [
            Mention(*hit.meanings[0], hit.start, hit.end) for hit in self.hits(text, typos) if len(hit.meanings) == 1
        ]

    def hits(self, text: str, typos: bool = False) -> Iterator[Hit]:
        """Like `find`, the ambiguous ones included. The longest name that begins at a word wins."""
        matches = list(_WORD.finditer(text))
        words = [_fold(match.group()) for match in matches]
        at = 0
        while at < len(words):
            length, meanings = self._match(words, at, typos)
            if meanings:
                yield Hit(meanings, matches[at].start(), matches[at + length - 1].end())
            at += length

    def _match(self, words: list[str], at: int, typos: bool) -> tuple[int, tuple[tuple[Kind, int], ...]]:
        for length in range(min(self._longest, len(words) - at), 0, -1):
            if meanings := self._index.get(tuple(words[at : at + length])):
                return length, meanings
        return 1, self._near(words[at]) if typos else ()

    def _near(self, word: str) -> tuple[tuple[Kind, int], ...]:
        found = {m for key, meanings in self._index.items() if len(key) == 1 and _slip(word, key[0]) for m in meanings}
        return tuple(found) if len(found) == 1 else ()

    @cached_property
    def _index(self) -> dict[tuple[str, ...], tuple[tuple[Kind, int], ...]]:
        """What each run of folded words can mean."""
        index: dict[tuple[str, ...], set[tuple[Kind, int]]] = {}
        for i, name in enumerate(self.reviewers):
            words = _words(name)
            for key in (words, words[:1], words[-1:]):
                index.setdefault(key, set()).add(("reviewer", i))
        for i, title in enumerate(self.papers):
            words, short = _words(title), len(_words(self.short_papers[i]))
            for end in range(short, len(words) + 1):  # the title, or as much of it as was written
                index.setdefault(words[:end], set()).add(("paper", i))
        # A whole name or short title means its owner, even where it is also a part of another's.
        for i in range(self.n):
            index[_words(self.reviewers[i])] = {("reviewer", i)}
        for i, short_title in enumerate(self.short_papers):
            index.setdefault(_words(short_title), set()).add(("paper", i))
        return {key: tuple(sorted(meanings)) for key, meanings in index.items()}

    @cached_property
    def _longest(self) -> int:
        return max(len(key) for key in self._index)


def _fold(word: str) -> str:
    """Case and accents taken off."""
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c)).casefold()


def _words(name: str) -> tuple[str, ...]:
    return tuple(_fold(word) for word in _WORD.findall(name))


def _slip(word: str, name: str) -> bool:
    """Whether `word` is `name` with one slip of the pen: the same first letter, and one letter added, swapped with its
    neighbour or (in names of five letters or more, where few English words are that near) replaced or dropped."""
    if word[:1] != name[:1]:
        return False
    if len(name) >= 3 and word == name + "s":  # "Avas score"
        return True
    if len(name) < 4:
        return False
    if len(name) >= 5 and word.replace("ph", "f") == name.replace("ph", "f"):  # "Sophia"
        return True
    if len(word) == len(name) + 1:
        return any(word[:i] + word[i + 1 :] == name for i in range(1, len(word)))
    if len(word) == len(name):
        differ = [i for i, (a, b) in enumerate(zip(word, name, strict=True)) if a != b]
        swapped = len(differ) == 2 and differ[1] == differ[0] + 1
        if swapped:
            return word[differ[0]] == name[differ[1]] and word[differ[1]] == name[differ[0]]
    if len(name) < 5:
        return False
    if len(word) == len(name):
        return len(differ) == 1
    return len(word) + 1 == len(name) and any(name[:i] + name[i + 1 :] == word for i in range(1, len(name)))
