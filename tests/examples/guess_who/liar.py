"""A partner that answers the opposite of the truth, and says more than it was asked."""

from __future__ import annotations

from typing import Any

from examples.guess_who.reading import read
from slim_rl.dialogue.partner import Reply
from slim_rl.environment import View


class Liar:
    identity: dict[str, Any] = {"kind": "liar"}  # noqa: RUF012

    async def reply(self, view: View) -> Reply:
        question = read(view.received[-1]).question
        if question is None:
            return Reply(f"It has {view.private.characters[view.private.secret][0]}.")
        return Reply("No." if view.private.board.truth(question) else "Yes.")
