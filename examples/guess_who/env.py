"""Guess Who for two seats, in strict turns: seat 0 asks and guesses once, seat 1 knows the hidden character and answers.

    [message] any words       of either seat; words without a tag are a message
    [guess] Mara              of the asker; it ends the game, with reward 1 for the hidden character and 0 for any other
    [guess]                   with tiles: the first character that is left

Everything follows from the game state and the texts given to `step`. A refused action leaves the turn with its author.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from examples.guess_who import players, worth
from examples.guess_who.annotate import KINDS, annotate, partner_faults, state_values
from examples.guess_who.board import GameBoard
from examples.guess_who.demonstrations import curriculum
from examples.guess_who.reading import answer_of, asks, named_characters, read, untagged
from examples.guess_who.settings import GuessWhoSettings
from examples.guess_who.view import GuessWhoView
from examples.guess_who.worth import Suspects
from slim_rl import BaseEnvironment, Board, DataError, Instrument, seed_of

_ASK = "Ask one thing at a time, a trait or a character, to be answered with yes or no."


class GuessWhoEnv(BaseEnvironment):
    """See the module's docstring. A game state is `GameBoard.to_dict`'s.

    Args:
        max_errors, tiles, rules: as in `GuessWhoSettings`.
    """

    seats = 2
    tags: ClassVar[tuple[str, ...]] = ("message", "guess")
    undealt: ClassVar[tuple[str, ...]] = ("max_errors", "tiles", "rules")
    Settings = GuessWhoSettings
    partners: ClassVar[Mapping[str, str]] = {
        "shy": "examples.guess_who.partners.ShyPartner",
        "mute": "examples.guess_who.partners.MutePartner",
    }
    instrument = f"{__name__}.GuessWhoInstrument"

    def __init__(self, max_errors: int = 3, tiles: bool = True, rules: Literal["full", "none"] = "full") -> None:
        self.max_errors, self.tiles, self.rules = max_errors, tiles, rules

    @classmethod
    def deal(
        cls, game: GuessWhoSettings, seed: int, split: str, numbers: range, workers: int = 1
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in numbers:
            board = GameBoard.dealt(seed_of(seed, split, number), game.size, game.max_questions)
            yield board.id, board.to_dict()

    def reset(self, game_state: Any) -> None:
        """Deals a game. Raises DataError for a malformed state."""
        self.game = GameBoard.from_dict(game_state)
        self.suspects = Suspects(self.game)
        self.turn = self.errors = self.asked = 0  # errors: in a row
        self.guess: str | None = None
        self.end: str | None = None
        self._last = ""  # what the asker said

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": self.turn, "action": None, "error": None}
        if self.end is not None:
            return "The game is over.", True, info | {"error": "The game is over.", "end": self.end}
        action = self._read(text)
        if isinstance(action, str):
            observation = f"Error: {action}"
            info["error"] = action
            self.errors += 1
            if self.errors >= self.max_errors:
                self.end = "errors"
        else:
            self.errors, info["action"] = 0, action
            observation = self._take(action)
        return observation, self.end is not None, info | ({"end": self.end} if self.end else {})

    def _read(self, text: str) -> dict[str, str] | str:
        """Returns the action, or an error message."""
        tag, body = untagged(text)
        if tag not in self.tags or (tag == "guess" and self.turn == 1):
            return "Begin with [message]." if self.turn else "Begin with [message] or [guess]."
        if tag == "message":
            if not body:
                return "The message is empty: write something after [message]."
            inside = "[guess]" in body.lower() and self.turn == 0
            return "Say [guess] first, or not at all." if inside else {"kind": tag, "text": body}
        if self.tiles and not body:
            return {"kind": tag, "name": self.suspects.names[0]}
        named = [name for name in named_characters(body) if name in self.game.characters]
        if len(named) != 1:
            return f"Guess one character of the board, by name, such as [guess] {self.game.names[0]}."
        return {"kind": tag, "name": named[0]}

    def _take(self, action: Mapping[str, str]) -> str:
        """Plays a valid action; returns how the other seat reads it."""
        if action["kind"] == "guess":
            self.guess, self.end = action["name"], "finished"
            return "Over."
        author, self.turn = self.turn, 1 - self.turn
        if author == 1:
            return self._heard(action["text"])
        self._last = action["text"]
        self.asked += 1
        if self.asked > self.game.max_questions:
            self.end = "max_turns"
        return action["text"]

    def _heard(self, text: str) -> str:
        """Returns an answer as the asker reads it, with the remaining tiles."""
        question, answer = read(self._last).question, answer_of(text)
        if question is not None and answer is not None:
            self.suspects.update(question, answer)
        return f"{text}\n{self._standing}" if self.tiles else text

    @property
    def _standing(self) -> str:
        return f"Left: {', '.join(self.suspects.names)}."

    def get_normalized_reward(self) -> float:
        """1 if the hidden character was guessed, else 0."""
        return float(self.guess == self.game.secret)

    def get_prompt_prefix(self, seat: int = 0) -> str:
        game = "This is Guess Who: one of the characters on the board is the hidden one. "
        if seat == 1:
            return (
                f"{game}You know it; the other player asks about it, and then guesses once.\n"
                "Each of your turns is one line, begun with [message]. You are shy and honest. Answer a question about one trait or one "
                "character with yes or no, and add nothing. To anything else, a general question or one about several things, be vague: "
                "tell nothing, and say that you answer yes or no about one thing at a time."
            )
        alone = "[guess] alone names the first character that is left.\n" if self.tiles else ""
        return (
            f"{game}Find out who it is by asking your partner. {_ASK}\n"
            "Each turn is one action, begun with its tag:\n"
            "[message] Does it wear glasses?\n"
            f"[guess] {self.game.names[0]}\n"
            f"{alone}"
            f"You may send {self.game.max_questions} messages at most, and guess once: 1 for the hidden character, 0 for any other, and 0 "
            "without a guess."
        )

    def get_state_description(self, seat: int = 0) -> str:
        lines = [f"{name}: {', '.join(traits)}" for name, traits in self.game.characters.items()]
        if seat == 1:
            lines.append(f"The hidden character is {self.game.secret}.")
        elif self.tiles:
            lines.append(f"Left: {', '.join(self.game.names)}.")
        return "\n".join(("On the board:", *lines))

    def get_private_view(self, seat: int) -> GuessWhoView:
        return GuessWhoView(
            seat=seat,
            characters=dict(self.game.characters),
            left=tuple(self.suspects.names),
            questions_left=self.game.max_questions - self.asked,
            tiles=self.tiles,
            secret=self.game.secret if seat == 1 else None,
        )

    def solution(self) -> dict[str, Any]:
        """``secret``, the hidden character."""
        return {"secret": self.game.secret}

    def board(self, seat: int | None) -> Board:
        knows, left = seat != 0, self.suspects.names
        traits = [", ".join(traits) for traits in self.game.characters.values()]
        standing = ["" if name in left or not (self.tiles or seat is None) else "down" for name in self.game.names]
        marked = frozenset({(self.game.names.index(self.game.secret), 0)}) if knows else frozenset()
        title = "the characters, the hidden one marked" if knows else "the characters"
        return Board(title, self.game.names, ("traits", "tile"), tuple(zip(traits, standing, strict=True)), marked)


class GuessWhoInstrument(Instrument):
    """What the asker's questions are worth."""

    question_kinds: ClassVar[Mapping[str, str]] = KINDS
    annotator_version = 4  # 1 and 2 read some answers that leave it open as yes or no
    annotate = staticmethod(annotate)
    state_values = staticmethod(state_values)
    partner_faults = staticmethod(partner_faults)
    asks = staticmethod(asks)
    questions_worth_asking = staticmethod(worth.questions_worth_asking)
    references = staticmethod(worth.references)
    frontier = staticmethod(worth.frontier)
    scripted_players = staticmethod(players.scripted_players)
    baselines = staticmethod(players.baselines)
    curriculum = staticmethod(curriculum)

    def viewer_board(self, game_state: Any, seat: int) -> dict[str, Any] | None:
        """Returns the characters and the hidden one as text; None for another game's state."""
        try:
            game = GameBoard.from_dict(game_state)
        except DataError:
            return None
        lines = [f"{name}: {', '.join(traits)}" for name, traits in game.characters.items()]
        return {"text": "\n".join((*lines, f"Hidden: {game.secret}"))}
