"""Characters and their traits: any two differ in three or more, and each has one colour of hair."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _hair(word: str) -> str:
    """Words for a kind of hair: "red hair", "red curly hair", "red-haired", "is its hair red"."""
    return rf"\b{word}\b(?:[ ,]+(?!eye)\w+){{0,2}}?[ -]hair|\bhair\b[^.?!]*\b{word}\b"


# Each trait, and the words by which a message names it.
_WORDS: Mapping[str, str] = {
    "black hair": _hair("black"),
    "brown hair": _hair("brown") + r"|\bbrunettes?\b",
    "red hair": _hair("red") + r"|\bred-?head|\bginger\b",
    "blond hair": _hair("blonde?") + r"|\bblonde?s?\b(?! ?(?:hair|beard|mo?ustache))",
    "white hair": _hair("white"),
    "curly hair": r"\bcurl(?:y|ed|s)\b",
    "long hair": _hair("long"),
    "glasses": r"\bglasses\b|\bspectacles\b",
    "hat": r"\bhats?\b|\bcaps?\b",
    "beard": r"\bbeard(?:s|ed)?\b",
    "moustache": r"\bmo?ustache[sd]?\b",
    "earrings": r"\bearrings?\b",
    "scarf": r"\bscar(?:f|fs|ves)\b",
    "freckles": r"\bfreckle[sd]?\b",
    "blue eyes": r"\bblue[ -]?eye[sd]?\b|\beyes?\b[^.?!]*\bblue\b",
}
TRAITS: tuple[str, ...] = tuple(_WORDS)
_PATTERNS = {trait: re.compile(words, re.IGNORECASE) for trait, words in _WORDS.items()}

_TABLE = {
    "Alba": "black hair, long hair, earrings, scarf, freckles",
    "Bruno": "black hair, beard, earrings",
    "Cleo": "brown hair, scarf, freckles",
    "Dario": "white hair, curly hair, earrings, freckles, blue eyes",
    "Edda": "red hair, curly hair, glasses, freckles, blue eyes",
    "Felix": "brown hair, glasses, beard, moustache, scarf, freckles",
    "Greta": "black hair, curly hair, long hair, hat, blue eyes",
    "Hugo": "red hair, curly hair, earrings, scarf, blue eyes",
    "Ines": "black hair, curly hair, glasses, blue eyes",
    "Jonas": "red hair, hat, beard, moustache",
    "Kira": "black hair, long hair, glasses",
    "Leon": "red hair, curly hair, beard, scarf, freckles, blue eyes",
    "Mara": "brown hair, hat, blue eyes",
    "Nils": "blond hair, glasses, beard, moustache, earrings, blue eyes",
    "Olga": "brown hair, long hair, glasses, scarf",
    "Pablo": "red hair, long hair, glasses, hat, beard, blue eyes",
    "Quinn": "blond hair, curly hair, long hair, moustache, earrings",
    "Rosa": "white hair, long hair, scarf, blue eyes",
    "Silas": "blond hair, glasses, hat, beard, freckles",
    "Tilda": "brown hair, curly hair, long hair, hat",
    "Umar": "brown hair, curly hair, glasses, moustache, earrings, scarf",
    "Vera": "blond hair, hat, earrings, blue eyes",
    "Wanda": "black hair, curly hair, long hair, glasses, hat, freckles",
    "Yuri": "white hair, beard, moustache, earrings, freckles",
}
CHARACTERS: Mapping[str, tuple[str, ...]] = {name: tuple(traits.split(", ")) for name, traits in _TABLE.items()}


def named_traits(text: str) -> list[str]:
    """Returns the traits that a text names, in the order of `TRAITS`."""
    return [trait for trait, pattern in _PATTERNS.items() if pattern.search(text)]


def phrase(trait: str) -> str:
    """Returns a trait as the object of "has": "a hat", "glasses"."""
    return f"a {trait}" if trait in ("hat", "beard", "moustache", "scarf") else trait
