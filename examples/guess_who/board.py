"""Board of a game, from which the true answers of all questions follow.

Sets of characters are whole numbers, a bit for each character in the board's order: bit 0 is the first.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from examples.guess_who.traits import CHARACTERS, TRAITS
from slim_rl import DataError

Question = tuple[str, str]  # ("trait", "hat") or ("character", "Mara")


@dataclass(frozen=True)
class GameBoard:
    """See the module's docstring.

    Attributes:
        characters: those on the board and their traits, in the order in which they are shown.
        secret: the name of the hidden one.
        max_questions: how many messages the asker may send.
    """

    characters: Mapping[str, tuple[str, ...]]
    secret: str
    max_questions: int = 8

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.characters)

    @cached_property
    def everyone(self) -> int:
        return (1 << len(self.characters)) - 1

    @cached_property
    def questions(self) -> dict[Question, int]:
        """Plain questions about traits and characters, each with the set of characters for whom the answer is yes."""
        found: dict[Question, int] = {}
        for trait in dict.fromkeys((*TRAITS, *(trait for traits in self.characters.values() for trait in traits))):
            found["trait", trait] = sum(1 << i for i, traits in enumerate(self.characters.values()) if trait in traits)
        return found | {("character", name): 1 << i for i, name in enumerate(self.names)}

    def truth(self, question: Question) -> bool:
        """Returns True if the honest answer is yes; a character that is not on the board gets no."""
        return bool(self.questions.get(question, 0) & self.hidden)

    @cached_property
    def hidden(self) -> int:
        """Set of the hidden character."""
        return 1 << self.names.index(self.secret)

    def among(self, left: int) -> list[str]:
        """Returns the names in a set."""
        return [name for i, name in enumerate(self.names) if left >> i & 1]

    @property
    def id(self) -> str:
        """Digest of the game."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; holds the traits too, so that a log can be read whatever becomes of the table."""
        characters = {name: list(traits) for name, traits in self.characters.items()}
        return {"characters": characters, "secret": self.secret, "max_questions": self.max_questions}

    @classmethod
    def from_dict(cls, state: Any) -> GameBoard:
        """Reads `to_dict`'s form. Raises DataError for any other."""
        try:
            characters = {str(name): tuple(map(str, traits)) for name, traits in state["characters"].items()}
            made = cls(characters, str(state["secret"]), int(state["max_questions"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                "This is not a game state of Guess Who: it needs characters, a secret and max_questions."
            ) from error
        if made.secret not in made.characters or len(made.characters) < 2:
            raise DataError(f"The hidden character {made.secret} must be one of two or more on the board.")
        return made

    @classmethod
    def dealt(cls, seed: int, size: int, max_questions: int) -> GameBoard:
        """`size` of the 24 characters in a random order, one of them hidden. The same seed gives the same game."""
        rng = random.Random(seed)
        names = rng.sample(list(CHARACTERS), size)
        return cls({name: CHARACTERS[name] for name in names}, rng.choice(names), max_questions)
