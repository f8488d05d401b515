"""User simulator, an LLM as the user: the assistant asks a user for facts, then answers, and its reward is a function of the answer.

    slim-rl play user_simulator                                                    you are the assistant, a script is the user
    slim-rl play user_simulator --set partner.kind=openai                          GPT-4.1 is the user, in the persona below
    slim-rl train user_simulator --set policy.model=Qwen/Qwen2.5-0.5B-Instruct     the same config trains with TRL, slime and verl

For a user simulator of your own, change `PERSONA`, `reward` and the tasks (docs/how-to/simulate-a-user.md). A task is one line of
user_simulator.jsonl: {"scenario": what the user asks, "known": {fact: what the user knows of it}, "answer": the right answer}.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from slim_rl import BaseEnvironment, DataError, Frontier, Instrument, Partner, PartnerFailure, Turn, View, jsonl

PERSONA = (
    "You are the user, a busy person who wants one answer from an assistant. You know the facts below and no others. When it asks about a fact, "
    "tell it that one, in the words written here. Never tell a fact that it did not ask about, and never work out the answer yourself."
)
RULES = (
    "A user wants one answer, and knows facts that you need for it, which it tells only if you ask. Ask about one thing at a time. "
    "When you know enough, write 'Answer:' and the answer alone."
)
ANSWER = re.compile(r"answer:(.*)", re.IGNORECASE | re.DOTALL)


def reward(answer: str, task: Mapping[str, Any]) -> float:
    """Returns 1 for the right answer, whatever its case and punctuation; otherwise 0."""
    given, right = (" ".join(re.findall(r"\w+", text.casefold())) for text in (answer, task["answer"]))
    return float(given == right)


class UserSimulator(BaseEnvironment):
    """Seat 0 is the assistant, which speaks first; seat 1 is the user. A game state is a task.

    Args:
        tasks: file of tasks; empty: the twelve beside this file. Every third is held out.
        max_turns: messages of both together; after them the reward is 0.
    """

    seats = 2
    partners: ClassVar[Mapping[str, str]] = {"scripted": f"{__name__}.ScriptedUser"}
    instrument = f"{__name__}.Facts"
    undealt: ClassVar[tuple[str, ...]] = ("max_turns",)

    def __init__(self, tasks: str = "", max_turns: int = 12) -> None:
        self.max_turns = max_turns

    @classmethod
    def deal(cls, game: Any, seed: int, split: str, numbers: range, workers: int = 1) -> Iterator[tuple[str, Any]]:
        file = game.get("tasks") or Path(__file__).with_suffix(".jsonl")
        rows = jsonl.read(file, "tasks", "name a file in game.tasks")
        tasks = [task for line, task in rows if (line % 3 == 1) == (split == "eval")]
        if not tasks:
            raise DataError(f"{file} has no task for {split}; write at least two.")
        for number in numbers:
            yield f"{split}-{number}", tasks[(seed + number) % len(tasks)]

    def reset(self, game_state: Any) -> None:
        self.task, self.turn, self.taken, self.answer = game_state, 0, 0, ""

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info = {"seat": self.turn, "action": {"kind": "message"}, "error": None}
        if self.turn == 0 and (answer := ANSWER.search(text)):
            self.answer = answer[1]
            return "Over.", True, info | {"action": {"kind": "answer"}, "end": "finished"}
        self.turn, self.taken = 1 - self.turn, self.taken + 1
        over = self.taken >= self.max_turns
        return text, over, info | ({"end": "max_turns"} if over else {})

    def get_normalized_reward(self) -> float:
        return reward(self.answer, self.task)

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return PERSONA if seat == 1 else RULES

    def get_state_description(self, seat: int = 0) -> str:
        facts = [f"- {fact}: {value}" for fact, value in self.task["known"].items()]
        return "\n".join((self.task["scenario"], *(facts if seat == 1 else ())))

    def get_private_view(self, seat: int) -> dict[str, str] | None:
        return self.task["known"] if seat == 1 else None


class ScriptedUser(Partner):
    """User without a model, for tests and first runs: it tells the facts whose names the assistant's message has."""

    identity: ClassVar[dict[str, Any]] = {"kind": "scripted"}

    async def act(self, view: View) -> Turn:
        if (known := view.private) is None:
            raise PartnerFailure("The user sits in seat 1: set data.seat to 0.")
        told = [f"{name}: {fact}." for name, fact in known.items() if name.casefold() in view.observation.casefold()]
        return Turn(" ".join(told) or "I do not know that.")


class Facts(Instrument):
    """Measures of the assistant's questions: which fact each brought out, in the words of the task."""

    question_kinds: ClassVar[Mapping[str, str]] = {"fact": "that brought out a fact", "vain": "that brought out none"}

    def annotate(self, dialogue: Any) -> None:
        known, heard = dialogue.game_state["known"].items(), set[tuple[str]]()
        for turn, reply in pairwise((*dialogue.turns, Turn(""))):
            turn.clear_annotations()
            told = [(name,) for name, fact in known if turn.seat == 0 and str(fact).casefold() in reply.text.casefold()]
            turn.seeking = bool(told) or (turn.seat == 0 and self.asks(turn.text))
            turn.questions = [] if not turn.seeking else ["fact" if told else "vain"]
            turn.pairs, turn.informative = told, [fact for fact in told if fact not in heard]
            turn.answered = bool(told) if turn.seeking else None
            heard.update(told)
        dialogue.columns |= {"facts": len(known), "told": len(heard)}

    def asks(self, text: str, game_state: Any = None) -> bool:
        return "?" in text and not ANSWER.search(text)

    def questions_worth_asking(self, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        return [f"What about the {fact}?" for fact in game_state["known"]][: number if seat == 0 else 0]

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
        left = np.array([len(task["known"]) for task, _ in games])[:, None] - np.arange(most + 1)  # facts to ask for
        return {"greedy": Frontier((left <= 0).astype(float), np.where(left > 0, 1 / np.maximum(left, 1), -np.inf))}
