"""Guess Who for two seats, in strict turns: seat 0 asks and guesses once, seat 1 knows the hidden character and answers.

    [ask] hat         about a trait or a character
    [guess] Mara      ends the game, with reward 1 for the hidden character and 0 for any other; [guess] alone names the first that is left
    [answer] yes      of seat 1: yes, no or pass

Everything follows from the game state and the texts given to `step`. A refused action leaves the turn with its author.
"""

import hashlib
import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from slim_rl import BaseEnvironment, Partner, PartnerFailure, Section, Turn, View, seed_of

_TABLE = {  # any two differ in three traits or more
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
CHARACTERS = {name: traits.split(", ") for name, traits in _TABLE.items()}
TRAITS = list(dict.fromkeys(trait for traits in CHARACTERS.values() for trait in traits))
_ACTION = re.compile(r"\s*\[(ask|guess|answer)\]\s*(.*?)[\s.?!]*", re.IGNORECASE | re.DOTALL)


class GuessWhoSettings(Section):
    """Guess Who."""

    size: int = Field(12, ge=2, le=len(CHARACTERS))
    """characters on the board, drawn for each game from the 24"""
    max_questions: int = Field(8, ge=1)
    """questions that the asker may ask; one more ends the game with reward 0"""
    max_errors: int = Field(3, ge=1)
    """refused actions in a row that end the game"""
    rules: Literal["full", "none"] = "full"
    """full: the policy reads the rules; none: for a model that was taught them by demonstrations"""


@dataclass
class Suspects:
    """Knowledge of an asker.

    Attributes:
        traits: name -> traits of each character on the board.
        left: names of those who fit every answer so far.
        questions_left: questions that may still be asked.
        secret: the hidden character; None in the asker's view.
    """

    traits: Mapping[str, list[str]]
    left: list[str]
    questions_left: int
    secret: str | None

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Suspects":
        """Returns what a game state says, before any question."""
        traits = dict(state["characters"])
        return cls(traits, list(traits), state["max_questions"], state["secret"])

    @property
    def questions(self) -> list[str]:
        """Returns everything that can be asked about: traits, then characters."""
        return [*TRAITS, *self.traits]

    def fits(self, about: str, name: str) -> bool:
        """Returns True if the answer to a question is yes for a character."""
        return about == name or about in self.traits[name]

    def bits(self, about: str) -> float:
        """Returns the expected information of an answer, in bits; 0 if it is known."""
        share = sum(self.fits(about, name) for name in self.left) / len(self.left)
        return -sum(part * math.log2(part) for part in (share, 1 - share) if part)

    def update(self, about: str, yes: bool) -> None:
        """Adds an answer; one that leaves nobody is not believed."""
        self.left = [name for name in self.left if self.fits(about, name) == yes] or self.left


class GuessWhoEnv(BaseEnvironment):
    """See the module's docstring. A game state has ``characters`` (name -> traits), ``secret`` and ``max_questions``.

    Args:
        max_errors, rules: as in `GuessWhoSettings`.
    """

    seats = 2
    tags: ClassVar[tuple[str, ...]] = ("ask", "guess", "answer")
    undealt: ClassVar[tuple[str, ...]] = ("max_errors", "rules")
    Settings = GuessWhoSettings
    partners: ClassVar[Mapping[str, str]] = {"shy": f"{__name__}.ShyPartner", "mute": f"{__name__}.MutePartner"}
    instrument = "examples.guess_who.measures.GuessWhoInstrument"

    def __init__(self, max_errors: int = 3, rules: Literal["full", "none"] = "full") -> None:
        self.max_errors, self.rules = max_errors, rules

    @classmethod
    def deal(
        cls, game: GuessWhoSettings, seed: int, split: str, numbers: range, workers: int = 1
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in numbers:
            rng = random.Random(seed_of(seed, split, number))
            names = rng.sample(list(CHARACTERS), game.size)
            characters = {name: CHARACTERS[name] for name in names}
            state = {"characters": characters, "secret": rng.choice(names), "max_questions": game.max_questions}
            yield hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16], state

    def reset(self, game_state: Any) -> None:
        self.suspects = Suspects.of(game_state)
        self.turn = self.errors = 0
        self.asked, self.guess = "", ""

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": self.turn, "action": None, "error": None}
        action = self._read(text)
        if isinstance(action, str):
            self.errors += 1
            over = {"end": "errors"} if self.errors >= self.max_errors else {}
            return f"Error: {action}", bool(over), info | {"error": action} | over
        self.errors, info["action"] = 0, action
        if action["kind"] == "guess":
            self.guess = action["about"]
            return "Over.", True, info | {"end": "finished"}
        self.turn = 1 - self.turn
        if action["kind"] == "ask":
            self.asked = action["about"]
            self.suspects.questions_left -= 1
            out = {"end": "max_turns"} if self.suspects.questions_left < 0 else {}
            return text, bool(out), info | out
        if action["about"] != "pass":
            self.suspects.update(self.asked, action["about"] == "yes")
        return f"{text}\nLeft: {', '.join(self.suspects.left)}.", False, info

    def _read(self, text: str) -> dict[str, str] | str:
        """Returns the action, or why it is refused."""
        match = _ACTION.fullmatch(text)
        kind, body = (match[1].lower(), match[2].lower()) if match else ("", "")
        if self.turn == 1:
            said = kind == "answer" and body in ("yes", "no", "pass")
            return {"kind": kind, "about": body} if said else "Reply with [answer] yes, [answer] no or [answer] pass."
        if kind == "guess" and not body:
            return {"kind": kind, "about": self.suspects.left[0]}
        known = {about.lower(): about for about in (self.suspects.questions if kind == "ask" else self.suspects.traits)}
        if kind not in ("ask", "guess") or body not in known:
            return "Use [ask] with one trait or one name of the board, or [guess] with one name."
        return {"kind": kind, "about": known[body]}

    def get_normalized_reward(self) -> float:
        return float(self.guess == self.suspects.secret)

    def get_prompt_prefix(self, seat: int = 0) -> str:
        game = "This is Guess Who: one of the characters on the board is the hidden one. "
        if seat == 1:
            return f"{game}You know it. Answer each question truly, with [answer] yes or [answer] no and nothing else."
        return (
            f"{game}Find out who it is by asking your partner about one trait or one character at a time:\n"
            f"[ask] hat\n[guess] {next(iter(self.suspects.traits))}\n[guess] alone names the first character that is left. "
            f"You may ask {self.suspects.questions_left} questions and guess once: 1 for the hidden character, 0 for any other."
        )

    def get_state_description(self, seat: int = 0) -> str:
        lines = [f"{name}: {', '.join(traits)}" for name, traits in self.suspects.traits.items()]
        last = f"The hidden character is {self.suspects.secret}." if seat else f"Left: {', '.join(self.suspects.left)}."
        return "\n".join(("On the board:", *lines, last))

    def get_private_view(self, seat: int) -> Suspects:
        game = self.suspects
        return Suspects(game.traits, list(game.left), game.questions_left, game.secret if seat else None)


class ShyPartner(Partner):
    """Answers what it is asked, truly."""

    identity: ClassVar[dict[str, Any]] = {"kind": "shy", "version": 4}  # raised when a view would get another reply

    async def act(self, view: View) -> Turn:
        """Returns the answer. Raises PartnerFailure on the asker's seat, and in another game."""
        game = view.private
        if not isinstance(game, Suspects) or game.secret is None:
            raise PartnerFailure(
                "The partner answers in Guess Who, from seat 1: set data.seat to 0, and environment to its game."
            )
        return Turn(f"[answer] {self.answer(view.received[-1], game, game.secret)}")

    def answer(self, question: str, game: Suspects, secret: str) -> str:
        about = question.rpartition("]")[2].strip(" \n.?!").lower()
        return "yes" if about in (fact.lower() for fact in (secret, *game.traits[secret])) else "no"


class MutePartner(ShyPartner):
    """Never answers."""

    identity: ClassVar[dict[str, Any]] = {"kind": "mute", "version": 4}

    def answer(self, question: str, game: Suspects, secret: str) -> str:
        return "pass"
