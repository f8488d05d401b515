"""Counts how many dialogues of a prompt group were played when some of them failed.

verl leaves a session that gives no output out of the batch, and so out of its group's baseline. But where one session of a
group is left, its GRPO makes that session's advantage the bare reward, as if the baseline were 0. So a session waits here for
its siblings, which verl's worker runs side by side and reads only when the last has ended, and learns how many were played.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakValueDictionary


@dataclass(eq=False)
class Group:
    """The sessions of one prompt. A session enters when it starts and leaves when it ends, also when it fails."""

    started: int = 0
    ended: int = 0
    played: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self, played: bool) -> None:
        self.ended += 1
        self.played += played
        if self.ended == self.started:
            self.complete.set()


class Groups:
    """Prompt groups in play in this process, by their uid; a group lives as long as a session holds it."""

    def __init__(self) -> None:
        self._groups: WeakValueDictionary[str, Group] = WeakValueDictionary()

    async def enter(self, uid: str) -> Group:
        """Returns a starting session's group, once the siblings created together with it have entered too."""
        group = self._groups.get(uid)
        if group is None:
            group = self._groups[uid] = Group()
        group.started += 1
        await asyncio.sleep(0)
        return group
