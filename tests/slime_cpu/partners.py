"""A partner that goes down in the middle of a run."""

from __future__ import annotations

from dataclasses import dataclass

from slim_rl.dialogue.partner import PartnerFailure, Reply
from slim_rl.environment import View
from slim_rl.games.matching.partners.scripted import ShyPartner


@dataclass
class Down(ShyPartner):
    """The shy partner, for so many dialogues; then it has no reply for any other."""

    dialogues: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = set[int]()

    async def reply(self, view: View) -> Reply:
        if view.seed not in self.seen and len(self.seen) == self.dialogues:
            raise PartnerFailure("down")
        self.seen.add(view.seed)
        return await super().reply(view)
