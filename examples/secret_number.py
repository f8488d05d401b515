"""Custom environment in sixty lines: find a secret number in as few guesses as possible.

It has one seat: the environment answers the player. The reward depends on the guesses.
"""

import random
import re
from typing import Any

from slim_rl import BaseEnvironment


def reward(guesses: list[int], secret: int, allowed: int) -> float:
    """Returns 1 for a hit at the first guess, less for each further guess, 0 without a hit."""
    return 1 - (len(guesses) - 1) / allowed if secret in guesses else 0.0


class SecretNumber(BaseEnvironment):
    """Guess a number from 1 to `high`.

    Args:
        high: the largest number.
        max_turns: guesses allowed.
        max_errors: answers in a row without a number that end the game.
    """

    seats = 1

    def __init__(self, high: int = 8, max_turns: int = 5, max_errors: int = 2) -> None:
        self.high, self.max_turns, self.max_errors = high, max_turns, max_errors

    @classmethod
    def sample_state(cls, seed: int) -> dict[str, Any]:
        return {"share": random.Random(seed).random()}  # of the range, so that one file serves any `high`

    def reset(self, game_state: Any) -> None:
        self.secret = 1 + int(game_state["share"] * self.high)
        self.guesses: list[int] = []
        self.errors = 0

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": 0, "action": None, "error": None}
        number = re.search(r"\d{1,6}", text)
        if number is None:
            self.errors += 1
            info["error"] = "Say a number."
            done = self.errors >= self.max_errors
            return "Say a number.", done, info | ({"end": "errors"} if done else {})
        self.errors = 0
        guess = int(number[0])
        self.guesses.append(guess)
        info["action"] = {"kind": "guess", "number": guess}
        if guess == self.secret or len(self.guesses) == self.max_turns:
            return "Over.", True, info | {"end": "finished" if guess == self.secret else "max_turns"}
        return "Higher." if guess < self.secret else "Lower.", False, info

    def get_normalized_reward(self) -> float:
        return reward(self.guesses, self.secret, self.max_turns)

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return f"Find the number from 1 to {self.high}. Each turn, say one number; you are told Higher or Lower."

    def get_state_description(self, seat: int = 0) -> str:
        return "Your guess?"
