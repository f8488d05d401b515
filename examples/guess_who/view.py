"""View of one seat of Guess Who, for scripted players."""

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
        """Board of the game; for the asker, with the first character in place of the unknown hidden one."""
        return GameBoard(self.characters, self.secret or next(iter(self.characters)))
