"""Demonstrations for the warm start: a player that asks a random number of questions about random traits, and then guesses.

It guesses the first remaining character, which wins as often as any other. Its questions do not depend on the game, except that it repeats
none. A model trained on it can ask but has no reason to: reinforcement learning has to find out whether, how often and what to ask.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from examples.guess_who.reading import read
from examples.guess_who.traits import TRAITS, phrase
from examples.guess_who.view import GuessWhoView
from slim_rl import Curriculum, Lesson, Partner, Turn, View

ASK = ("Does it have {trait}?", "Is it somebody with {trait}?", "Any sign of {trait}?")


class QuestioningPlayer(Partner):
    """Plays the asker's seat. The same view gives the same action.

    Args:
        messages: the chance of 0, 1, 2, ... questions before the guess.
    """

    def __init__(self, messages: Sequence[float]) -> None:
        self.messages = messages

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "questioning", "messages": list(self.messages)}

    async def act(self, view: View) -> Turn:
        return Turn(self.action(view))

    def action(self, view: View) -> str:
        """Returns the next action, as text with its tag."""
        game: GuessWhoView = view.private
        planned = random.Random(view.seed).choices(range(len(self.messages)), self.messages)[0]
        rng = random.Random(f"{view.seed}/{len(view.history)}")
        if len(view.sent) >= min(planned, len(TRAITS)) or not game.questions_left:
            return "[guess]" if game.tiles else f"[guess] {game.left[0]}"
        asked = {question[1] for text in view.sent if (question := read(text).question)}
        trait = rng.choice([trait for trait in TRAITS if trait not in asked])
        return f"[message] {rng.choice(ASK).format(trait=phrase(trait))}"


def curriculum(config: Any) -> Curriculum:
    """Demonstrations as `warmstart.messages` says, and after them the lesson "asked": with a question in every game."""
    settings = config.warmstart
    shares = settings.partners or {"shy": 1.0}
    asking = QuestioningPlayer((0.0, *settings.messages[1:]))
    return Curriculum(
        demonstrations=Lesson(QuestioningPlayer(settings.messages), shares),
        lessons={"asked": Lesson(asking, shares, 4_000, opening=False)},
        speaker=asking,
        words=[f"[{tag}]" for tag in ("message", "guess") for _ in range(500)],
    )
