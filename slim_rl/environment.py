"""The text games slim_rl can play: one small base class, for one seat or two.

A game is turn-based. `turn` is the seat (0 or 1) whose action `step` takes next; a malformed action leaves the turn with its
author, who is told why. A one-seat game keeps `turn` at 0 and answers the player itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from slim_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing said at the table, as the seat that reads it sees it.

    Attributes:
        seat: its author, 0 or 1.
        text: what was said, tag included.
        error: why the game refused it; None for a valid action. Only its author sees a refused action.
    """

    seat: int
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that one seat may see when it is its turn, and nothing else.

    Attributes:
        seat: whose view this is.
        rules: the game's rules (a system prompt).
        state: the opening description: what this seat alone was dealt.
        history: everything this seat has seen so far, oldest first.
        private: the game's own structured form of what the seat sees (for the matching game, a `MatchingView`).
        seed: drawn for this dialogue; whoever acts at random draws from it, so that a dialogue can be had again.
    """

    seat: int
    rules: str
    state: str
    history: tuple[Utterance, ...]
    private: Any
    seed: int


class BaseEnvironment(ABC):
    """A turn-based text game. Subclass it to train on a game of your own (see `examples/`).

    `info` of `step` holds: ``seat`` (author), ``action`` (a JSON-able dict, or None if malformed), ``error`` (a sentence, or
    None), and once done ``end``: why the game ended, one of ``agreed``, ``finished``, ``max_turns``, ``errors``.
    """

    seats: int = 1
    turn: int = 0

    @classmethod
    def sample_state(cls, seed: int) -> Any:
        """A deal drawn from `seed`, JSON-able: what `reset` is given. A game whose deals come from files needs none."""
        raise ConfigError(f"{cls.__name__} deals no games itself; give it a classmethod sample_state(seed).")

    @abstractmethod
    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        """Deals the game. Returns what the first seat to act sees, and an info dict."""

    @abstractmethod
    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        """Takes the action of seat `turn`. Returns (what the seat now to act sees, done, info). Never raises for any text."""

    @abstractmethod
    def get_normalized_reward(self) -> float:
        """The reward so far, in [0, 1]; shared by both seats."""

    @abstractmethod
    def get_prompt_prefix(self, seat: int = 0) -> str:
        """The rules, as a system prompt for `seat`."""

    @abstractmethod
    def get_state_description(self, seat: int = 0) -> str:
        """What `seat` is dealt, as the opening user message."""

    def get_private_view(self, seat: int) -> Any:
        """Structured form of what `seat` sees now, for scripted players. None if the game has none."""
        return None

    def prompt(self, seat: int = 0) -> list[dict[str, str]]:
        """The opening chat messages of `seat`."""
        return [
            {"role": "system", "content": self.get_prompt_prefix(seat)},
            {"role": "user", "content": self.get_state_description(seat)},
        ]

    def format_observation(self, observation: str) -> dict[str, str]:
        """An observation as a chat message (the convention of slime's multi-turn examples)."""
        return {"role": "user", "content": observation}

    def close(self) -> None:  # noqa: B027  most games hold nothing
        """Releases what the game holds. Nothing, by default."""
