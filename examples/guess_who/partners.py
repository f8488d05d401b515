"""Partners that know the hidden character and follow rules. They say nothing false.

    shy     answers yes or no to a plain question about one trait or one character, and nothing else; vague to any other message
    mute    answers nothing

A reply depends on the view alone, its seed included: the words are drawn from a few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from examples.guess_who.reading import Message, read
from examples.guess_who.view import GuessWhoView
from slim_rl import Partner, PartnerFailure, Turn, View

VERSION = 3  # raised when the same view would get another reply

YES = ("Yes.", "Yes, that is so.", "Indeed, yes.", "That is right.")
NO = ("No.", "No, that is not so.", "Not at all.", "That is wrong.")
VAGUE = (
    "Hard to say. Ask me about one thing.",
    "That depends. One trait or one character at a time, please.",
    "Ask me something that I can answer in a word.",
)
SILENT = ("I would rather keep that to myself.", "I cannot tell you that.", "Let us talk of something else.")
NOTED = ("I see.", "Thank you.", "Well.")


class ShyPartner(Partner):
    """Answers what it is plainly asked; vague otherwise."""

    kind: ClassVar[str] = "shy"

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": VERSION}

    async def act(self, view: View) -> Turn:
        """Returns the next action. Raises PartnerFailure on the asker's seat, and in another game."""
        game = view.private
        if not isinstance(game, GuessWhoView) or game.secret is None:
            raise PartnerFailure(
                f"The {self.kind} partner answers in Guess Who, from seat 1: set data.seat to 0 and environment to its game."
            )
        message = read(view.received[-1]) if view.received else Message(False)
        said = self.answer(message, game)
        return Turn(f"[message] {random.Random(f'{view.seed}/{len(view.history)}').choice(said)}")

    def answer(self, message: Message, game: GuessWhoView) -> Sequence[str]:
        """Returns the sentences from which the reply is drawn."""
        if message.question is not None:
            return YES if game.board.truth(message.question) else NO
        return VAGUE if message.asks else NOTED


class MutePartner(ShyPartner):
    """Never answers."""

    kind = "mute"

    def answer(self, message: Message, game: GuessWhoView) -> Sequence[str]:
        return SILENT if message.asks else NOTED
