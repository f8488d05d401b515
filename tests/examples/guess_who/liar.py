"""A partner that answers the opposite of the truth, and says more than it was asked."""

from __future__ import annotations

from typing import Any

from examples.guess_who.reading import read
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View


class Liar(Partner):
    identity: dict[str, Any] = {"kind": "liar"}  # noqa: RUF012

    async def act(self, view: View) -> Turn:
        question = read(view.received[-1]).question
        if question is None:
            return Turn(f"It has {view.private.characters[view.private.secret][0]}.")
        return Turn("No." if view.private.board.truth(question) else "Yes.")
