"""A two-seat game small enough to follow, and a policy that says what it is told to."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from slim_rl.dialogue.players import Partner, Policy, Sampled
from slim_rl.dialogue.record import Turn
from slim_rl.environment import BaseEnvironment, View


class Countdown(BaseEnvironment):
    """Seats take turns; an action must hold the word "go"; after `length` of them the game is agreed."""

    seats = 2

    def __init__(self, length: int = 4, max_errors: int = 2) -> None:
        self.length, self.max_errors = length, max_errors
        self.closed = False

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        self.turn, self.left, self.errors = 0, self.length, 0
        return self.get_state_description(0), {}

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": self.turn, "action": None, "error": None}
        if "go" not in text:
            self.errors += 1
            info["error"] = "Say go."
            done = self.errors >= self.max_errors
            return "Say go.", done, info | ({"end": "errors"} if done else {})
        self.errors, self.turn = 0, 1 - self.turn
        self.left -= 1
        info["action"] = {"kind": "go"}
        return text, self.left == 0, info | ({"end": "agreed"} if self.left == 0 else {})

    def get_normalized_reward(self) -> float:
        return 1.0 if self.left == 0 else 0.0

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return "Say go in turns."

    def get_state_description(self, seat: int = 0) -> str:
        return f"You are seat {seat}."

    def close(self) -> None:
        self.closed = True


class Script(Policy):
    """A policy that samples the given texts, one a turn, and keeps what it was asked."""

    identity: ClassVar[dict[str, Any]] = {"engine": "script"}

    def __init__(self, chat: Any, turns: Iterable[str | tuple[str, str] | Exception], logprob: float = -0.5) -> None:
        self.chat, self.turns, self.logprob = chat, iter(turns), logprob
        self.inputs: list[list[int]] = []
        self.keys: list[str] = []
        self.allowed: list[int] = []

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        self.inputs.append(list(input_ids))
        self.keys.append(key)
        self.allowed.append(max_tokens)
        turn = next(self.turns)
        if isinstance(turn, Exception):
            raise turn
        text, finish = turn if isinstance(turn, tuple) else (turn, "stop")
        ids = self.chat.tokenizer.encode(text, add_special_tokens=False)
        if finish == "stop":
            ids = [*ids, self.chat.end_id]
        if len(ids) >= max_tokens:  # as SGLang, which looks for the end token after that
            ids, finish = ids[:max_tokens], "length"
        return Sampled(ids, [self.logprob] * len(ids), finish)  # type: ignore[arg-type]


class Says(Partner):
    """A partner whose words are a function of its view."""

    identity: ClassVar[dict[str, Any]] = {"kind": "says"}

    def __init__(self, speak: Callable[[View], str] | str) -> None:
        self.speak = speak
        self.views: list[View] = []

    async def act(self, view: View) -> Turn:
        self.views.append(view)
        if isinstance(self.speak, str):
            return Turn(self.speak)
        return Turn(self.speak(view))
