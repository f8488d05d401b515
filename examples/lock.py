"""Game for two in which asking raises the reward: open a lock of four digits, whose keeper answers questions about them.

    slim-rl doctor lock                                       does asking raise the reward?
    slim-rl lab warmstart lock --output data/lock/start       makes a tiny model that knows the rules
    slim-rl train lock                                        trains it on a CPU, and prints whether it learned to ask

docs/tutorials/custom-environment.md explains each part.
"""

import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from slim_rl import BaseEnvironment, Curriculum, Frontier, Instrument, Lesson, Partner, Turn, View

PLACES, HIGHEST = (1, 2, 3, 4), 6  # four digits from 1 to 6


class Lock(BaseEnvironment):
    """Seat 0 opens the lock; seat 1 is the keeper. A game state is ``{"code": [5, 1, 6, 2], "shown": 1}``.

    Args:
        max_turns: messages of both together; after them the reward is 0.
        max_errors: refused actions in a row that end the game.
    """

    seats = 2
    partners: ClassVar[Mapping[str, str]] = {"keeper": f"{__name__}.Keeper"}
    instrument = f"{__name__}.Digits"

    def __init__(self, max_turns: int = 12, max_errors: int = 2) -> None:
        self.max_turns, self.max_errors = max_turns, max_errors

    @classmethod
    def sample_state(cls, seed: int) -> dict[str, Any]:  # the same seed, the same game
        rng = random.Random(seed)
        return {"code": [rng.randint(1, HIGHEST) for _ in PLACES], "shown": rng.choice(PLACES)}

    def reset(self, game_state: Any) -> None:
        self.code, self.asked = game_state["code"], game_state["shown"]
        self.known = {self.asked: self.code[self.asked - 1]}
        self.opened = False
        self.turn = self.taken = self.errors = 0

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:  # returns (observation, done, info)
        info: dict[str, Any] = {"seat": self.turn, "action": {"kind": "answer"}, "error": None}
        if self.turn == 0:
            action = re.fullmatch(r"\s*(?:(open)|ask ([1-4]))\W*", text, re.IGNORECASE)
            if action is None:
                error, self.errors = "Write 'open', or 'ask' and a place from 1 to 4.", self.errors + 1
                over = {"end": "errors"} if self.errors >= self.max_errors else {}
                return error, bool(over), info | {"action": None, "error": error} | over
            self.errors = 0
            if action[1]:
                self.opened = True
                return "Over.", True, info | {"action": {"kind": "open"}, "end": "finished"}
            self.asked = int(action[2])
            info["action"] = {"kind": "ask", "place": self.asked}
        elif digit := re.search(r"\d", text):
            self.known[self.asked] = int(digit[0])
        self.turn, self.taken = 1 - self.turn, self.taken + 1
        over = {"end": "max_turns"} if self.taken >= self.max_turns else {}
        return (self.get_state_description() if self.turn == 0 else text), bool(over), info | over

    def get_normalized_reward(self) -> float:  # the share of right digits; an unknown one is guessed to be 1
        right = [self.known.get(place, 1) == digit for place, digit in zip(PLACES, self.code, strict=True)]
        return sum(right) / len(right) if self.opened else 0.0

    def get_prompt_prefix(self, seat: int = 0) -> str:  # the system prompt
        if seat == 1:
            return "You keep a lock. Asked for a place of its code, answer with the digit there and nothing else."
        return "Open a lock of four digits. 'ask' and a place: the keeper tells its digit. 'open': try what you know."

    def get_state_description(self, seat: int = 0) -> str:  # the first user message
        digits = self.code if seat == 1 else [self.known.get(place, "?") for place in PLACES]
        return "Code: " + " ".join(map(str, digits))

    def get_private_view(self, seat: int) -> Any:  # for partners in code
        return self.code if seat == 1 else None


class Keeper(Partner):
    """Keeper that tells the digit it is asked for."""

    identity: ClassVar[dict[str, Any]] = {"kind": "keeper"}

    async def act(self, view: View) -> Turn:
        place = re.search(r"[1-4]", view.received[-1])
        return Turn(str(view.private[int(place[0]) - 1]) if place else "Which place?")


class Digits(Instrument):
    """Measures of the questions: which place each is about, and whether its digit was unknown."""

    question_kinds: ClassVar[Mapping[str, str]] = {"digit": "about a digit"}

    def annotate(self, dialogue: Any) -> None:
        known = {dialogue.game_state["shown"]}
        for turn, reply in pairwise((*dialogue.turns, Turn(""))):
            turn.clear_annotations()
            turn.seeking = (turn.action or {}).get("kind") == "ask"
            if turn.seeking:
                place, turn.answered = turn.action["place"], re.search(r"\d", reply.text) is not None
                turn.questions, turn.pairs = ["digit"], [(place,)]
                turn.informative = [(place,)] if turn.answered and place not in known else []
                known.add(place)

    def asks(self, text: str, game_state: Any = None) -> bool:
        return "ask" in text.lower()

    def questions_worth_asking(self, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        return [f"ask {place}" for place in PLACES if place != game_state["shown"]][:number]

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
        """Returns the rewards after 0, 1, ..., `most` good questions, and what the next one is expected to add."""
        digits = [game["code"][: game["shown"] - 1] + game["code"][game["shown"] :] for game, _ in games]
        rewards = [[(1 + len(unknown[:k]) + unknown[k:].count(1)) / 4 for k in range(most + 1)] for unknown in digits]
        gains = [(1 - 1 / HIGHEST) / 4 if k < 3 else -np.inf for k in range(most + 1)]
        return {"greedy": Frontier(np.array(rewards), np.tile(gains, (len(games), 1)))}

    def curriculum(self, config: Any) -> Curriculum:
        player = Demonstrator(config.warmstart.messages)
        return Curriculum(demonstrations=Lesson(player, {"keeper": 1.0}), lessons={}, speaker=player)


class Demonstrator(Partner):
    """Player of the demonstrations: it asks about 0, 1, 2, ... places with these chances, then opens."""

    def __init__(self, chances: Sequence[float]) -> None:
        self.chances = chances

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "demonstrator", "chances": list(self.chances)}

    async def act(self, view: View) -> Turn:
        rng, asked = random.Random(view.seed), len(view.sent)
        number = rng.choices(range(len(self.chances)), self.chances)[0]
        return Turn(f"ask {rng.sample(PLACES, len(PLACES))[asked]}" if asked < number else "open")
