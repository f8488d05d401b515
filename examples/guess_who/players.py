"""Scripted players: askers that show what a config rewards (`slim-rl lab incentives`), and demonstrations for the warm start.

Of two askers that differ in the number of their questions, the second asks all that the first asks, and then more. Demonstrations ask a random
number of questions about random traits: a model trained on them can ask but has no reason to, which is left to reinforcement learning.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from examples.guess_who.game import TRAITS, GuessWhoSettings, Suspects
from slim_rl import Curriculum, Lesson, Partner, ScriptedPlayer, Turn, View


class Asker(Partner):
    """Asks about at most `questions` traits, one at a time, and guesses one of the characters that are left.

    Args:
        best: it asks the question of the most bits; else about any trait that splits the board.
        price: question cost, in reward: it asks only while a question is expected to add more.
        guess: form of its guess of `{name}`, with `{other}` another character.
    """

    def __init__(
        self, questions: int = 0, best: bool = False, price: float = 0.0, guess: str = "[guess] {name}"
    ) -> None:
        self.questions, self.best, self.price, self.guess = questions, best, price, guess

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "scripted", "questions": self.questions, "best": self.best, "price": self.price}

    async def act(self, view: View) -> Turn:
        game: Suspects = view.private
        rng, refused = random.Random(f"{view.seed}/guess"), bool(view.history) and view.history[-1].error is not None
        asked, about = len(view.sent), self.question(view, game)
        if about and asked < min(self.questions, asked + game.questions_left) and 1 / len(game.left) >= self.price:
            return Turn(f"[ask] {about}")
        name = rng.choice(game.left)
        other = rng.choice([each for each in game.traits if each != name])
        return Turn(("[guess] {name}" if refused else self.guess).format(name=name, other=other))

    def question(self, view: View, game: Suspects) -> str | None:
        """Returns what it asks about next; None if nothing is left to ask."""
        if self.best:
            return max(TRAITS, key=game.bits) if len(game.left) > 1 else None
        whole = Suspects(game.traits, list(game.traits), 0, None)
        order = [each for each in random.Random(view.seed).sample(TRAITS, len(TRAITS)) if whole.bits(each)]
        return next(iter(order[len(view.sent) :]), None)


class Demonstrator(Asker):
    """Asks a number of questions drawn per game, none twice, then guesses the first character that is left.

    Args:
        messages: the chance of 0, 1, 2, ... questions before the guess.
    """

    def __init__(self, messages: Sequence[float]) -> None:
        super().__init__(len(TRAITS), guess="[guess]")
        self.messages = messages

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "questioning", "messages": list(self.messages)}

    def question(self, view: View, game: Suspects) -> str | None:
        rng = random.Random(view.seed)
        number = rng.choices(range(len(self.messages)), self.messages)[0]
        return next(iter(rng.sample(TRAITS, len(TRAITS))[:number][len(view.sent) :]), None)


def scripted_players(game: GuessWhoSettings, questions: Sequence[int]) -> list[ScriptedPlayer]:
    """Returns the honest players, then a cheat."""
    counts = [number for number in questions if 0 < number <= game.max_questions]
    cheat = ScriptedPlayer("two names in one guess", Asker(guess="[guess] {name} or {other}"), 0, against="a guess")
    return [
        ScriptedPlayer("a guess", Asker(), 0, "random"),
        *(ScriptedPlayer(f"{number} random", Asker(number), number, "random") for number in counts),
        *(ScriptedPlayer(f"{number} best", Asker(number, best=True), number, "best") for number in counts),
        cheat,
    ]


def baselines(game: GuessWhoSettings, price: float = 0.0, number: int = 3) -> dict[str, Any]:
    """Returns scripted policies by name: without a question, after a number of them, and after those that are worth their cost."""
    every = game.max_questions
    return {
        "solo": Asker(),
        f"forced:{number}": Asker(number),
        f"greedy:{number}": Asker(number, best=True),
        "ideal": Asker(every, best=True, price=price),
    }


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
