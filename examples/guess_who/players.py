"""Demonstrations for the warm start: a player that asks a random number of questions about random traits, then guesses.

A model trained on them can ask but has no reason to, which is left to reinforcement learning.
"""

import random
from collections.abc import Sequence
from typing import Any

from examples.guess_who.game import TRAITS
from slim_rl import Curriculum, Lesson, Partner, Turn, View


class Demonstrator(Partner):
    """Asks a number of questions drawn per game, none twice, then guesses the first character that is left.

    Args:
        messages: the chance of 0, 1, 2, ... questions before the guess.
    """

    def __init__(self, messages: Sequence[float]) -> None:
        self.messages = messages

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "questioning", "messages": list(self.messages)}

    async def act(self, view: View) -> Turn:
        rng = random.Random(view.seed)
        number = rng.choices(range(len(self.messages)), self.messages)[0]
        left = rng.sample(TRAITS, len(TRAITS))[:number][len(view.sent) :]
        return Turn(f"[ask] {left[0]}" if left else "[guess]")


def curriculum(config: Any) -> Curriculum:
    """Returns demonstrations as `warmstart.messages` says, and the lesson "asked": with a question in every game."""
    settings = config.warmstart
    shares = settings.partners or {"shy": 1.0}
    asking = Demonstrator((0.0, *settings.messages[1:]))
    return Curriculum(
        demonstrations=Lesson(Demonstrator(settings.messages), shares),
        lessons={"asked": Lesson(asking, shares, 4_000, opening=False)},
        speaker=asking,
        words=[f"[{tag}]" for tag in ("ask", "guess", "answer") for _ in range(500)],
    )
