"""What one seat of Guess Who sees, for players that are programs."""

from __future__ import annotations

from dataclasses import dataclass

from examples.guess_who.board import GameBoard


@dataclass(frozen=True, slots=True)
class GuessWhoView:
    """See the module's docstring.

    Attributes:
        seat: whose view this is.
        characters: those on the board and their traits.
        left: the names of those who fit every answer so far.
        questions_left: how many messages the asker may still send.
        tiles: whether a guess without a name is one of the first of those who are left.
        secret: the hidden character; None for the asker.
    """

    seat: int
    characters: dict[str, tuple[str, ...]]
    left: tuple[str, ...]
    questions_left: int
    tiles: bool
    secret: str | None

    @property
    def board(self) -> GameBoard:
        """The board as a game; for the asker, who does not know the hidden one, with the first in its place."""
        return GameBoard(self.characters, self.secret or next(iter(self.characters)))
