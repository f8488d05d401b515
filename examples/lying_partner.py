"""A partner is one class in one file: a config names it by its dotted path, and nothing else is edited.

partner: {kind: examples.lying_partner.LyingPartner, args: {lies: 0.5}}
"""

from __future__ import annotations

import random
from typing import Any

from examples.treasure import HonestPartner, Line
from slim_rl import View


class LyingPartner(HonestPartner):
    """A guide that turns an answer round with chance `lies`. The same view gets the same answer: chance comes from its seed."""

    def __init__(self, lies: float = 0.5) -> None:
        self.lies = lies

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "lying", "lies": self.lies}

    def answer(self, line: Line, view: View) -> bool:
        lie = random.Random(f"{view.seed}/{len(view.history)}").random() < self.lies
        return super().answer(line, view) != lie
