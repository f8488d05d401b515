"""Custom partner: one class, which a config names by its dotted path.

partner: {kind: examples.lying_partner.LyingPartner, args: {lies: 0.5}}
"""

import random
from typing import Any

from examples.treasure import HonestPartner, Line
from slim_rl import View


class LyingPartner(HonestPartner):
    """Guide that inverts an answer with probability `lies`; the view's seed decides, so the same view gets the same answer."""

    def __init__(self, lies: float = 0.5) -> None:
        self.lies = lies

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "lying", "lies": self.lies}

    def answer(self, line: Line, view: View) -> bool:
        lie = random.Random(f"{view.seed}/{len(view.history)}").random() < self.lies
        return super().answer(line, view) != lie
