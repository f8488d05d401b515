"""Custom environment for two seats, with a partner: find the treasure by asking (docs/reference/environment-api.md).

The seeker (seat 0) digs once: half the reward is for the right row, half for the right column. It sees nothing of the treasure;
the guide (seat 1) knows the cell. A message with a number digs there, unless it asks: whatever has a question mark, or a number right after "row" or
"column", digs nowhere. One that names a row or a column by its letter asks about it.
"""

import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from slim_rl import BaseEnvironment, Board, Frontier, Instrument, Partner, PartnerFailure, Turn, View

NAMES = ("ABC", "XYZ")  # of the rows, of the columns
KINDS = ("row", "column")
Line = tuple[int, int]  # (0, row) or (1, column)
LINES: list[Line] = [(axis, index) for axis in (0, 1) for index in range(3)]


def cell_dug(text: str) -> int | None:
    """Returns the number that a message digs at, even if there is no such cell; None if it does not dig."""
    if "?" in text:
        return None
    number = re.search(r"(?<!row )(?<!column )(?<!\d)\d{1,6}", text, re.IGNORECASE)
    return int(number[0]) if number else None


def lines_named(text: str) -> list[Line]:
    """Returns the rows and columns that a message asks about; empty if it digs."""
    return [] if cell_dug(text) is not None else [(a, i) for a, i in LINES if re.search(rf"\b{NAMES[a][i]}\b", text)]


class Treasure(BaseEnvironment):
    """Find the treasure on a board of 3 × 3 cells. A game state is ``{"treasure": [row, column]}``.

    Args:
        max_turns: messages of both players together.
        max_errors: refused actions in a row that end the game.
    """

    seats = 2
    partners: ClassVar[Mapping[str, str]] = {"honest": f"{__name__}.HonestPartner"}
    instrument = f"{__name__}.Compass"

    def __init__(self, max_turns: int = 10, max_errors: int = 2) -> None:
        self.max_turns, self.max_errors = max_turns, max_errors

    @classmethod
    def sample_state(cls, seed: int) -> dict[str, Any]:
        return {"treasure": list(divmod(random.Random(seed).randrange(9), 3))}

    def reset(self, game_state: Any) -> None:
        self.row, self.column = game_state["treasure"]
        self.turn = self.taken = self.errors = 0
        self.dug: tuple[int, int] | None = None

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": self.turn, "action": None, "error": None}
        number = cell_dug(text) if self.turn == 0 else None
        if not text.strip() or (number is not None and not 1 <= number <= 9):
            self.errors += 1
            info["error"] = "Ask about a row or a column, or dig in a cell from 1 to 9."
            done = self.errors >= self.max_errors
            return info["error"], done, info | ({"end": "errors"} if done else {})
        self.turn, self.taken, self.errors = 1 - self.turn, self.taken + 1, 0
        if number is not None:
            self.dug = divmod(number - 1, 3)
            return "Over.", True, info | {"action": {"kind": "dig", "cell": number}, "end": "finished"}
        done = self.taken >= self.max_turns
        return text, done, info | {"action": {"kind": "message"}} | ({"end": "max_turns"} if done else {})

    def get_normalized_reward(self) -> float:
        return 0.0 if self.dug is None else ((self.dug[0] == self.row) + (self.dug[1] == self.column)) / 2

    def get_prompt_prefix(self, seat: int = 0) -> str:
        board = "A treasure lies in one of nine cells: 1 2 3 in row A, 4 5 6 in row B, 7 8 9 in row C; columns X Y Z."
        if seat == 1:
            return f"{board} You know where. Answer the seeker's questions."
        return f"{board} Ask the guide about a row or a column by its letter, or say a number to dig there, once."

    def get_state_description(self, seat: int = 0) -> str:
        row, column = NAMES[0][self.row], NAMES[1][self.column]
        return "Where is it?" if seat == 0 else f"It is in row {row}, column {column}."

    # --- what else the project can use

    def get_private_view(self, seat: int) -> Any:
        return (self.row, self.column) if seat == 1 else None

    def board(self, seat: int | None) -> Board:
        marked = frozenset() if seat == 0 else frozenset({(self.row, self.column)})
        cells = (("1", "2", "3"), ("4", "5", "6"), ("7", "8", "9"))
        title = "the cells, the treasure marked" if marked else "the cells"
        return Board(title, tuple(NAMES[0]), tuple(NAMES[1]), cells, marked)


class Compass(Instrument):
    """What the seeker's questions are worth."""

    question_kinds: ClassVar[Mapping[str, str]] = {kind: f"about a {kind}" for kind in KINDS}

    def asks(self, text: str, game_state: Any = None) -> bool:
        return bool(lines_named(text))

    def questions_worth_asking(self, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        belief, worth = Belief(), []
        for line in random.Random(seed).sample(LINES, len(LINES)):
            if belief.expected_value(line):
                worth.append(f"{NAMES[line[0]][line[1]]}?")  # short: a forced question is cut where a turn would be
                belief.update(line, game_state["treasure"][line[0]] == line[1])
        return worth[:number] if seat == 0 else []

    def annotate(self, dialogue: Any) -> None:
        """`pairs` are lines. `question_value` is what an answer added to the reward for all the seeker can know, `gain` what it truly
        added: they differ where the guide lies.
        """
        treasure = dialogue.game_state.get("treasure", (0, 0))
        belief, question = Belief(), None
        for turn in dialogue.turns:
            turn.questions, turn.pairs, turn.informative, turn.stated, turn.seeking = [], [], [], [], False
            turn.answered = turn.question_value = turn.gain = turn.regret = None
            turn.state_value = belief.expected() if turn.seat == 0 else None
            if turn.action is None:
                continue
            if turn.seat == 1:
                answer = re.search(r"\b(yes|no)\b", turn.text.lower())
                if question is not None and answer and len(question.pairs) == 1:
                    question.informative = [line for line in question.pairs if belief.expected_value(line)]
                    before, truly = belief.expected(), belief.expected(treasure)
                    belief.update(question.pairs[0], answer[0] == "yes")
                    turn.stated, question.answered = list(question.pairs), True
                    question.question_value = belief.expected() - before
                    question.gain = belief.expected(treasure) - truly
                question = None
            elif lines := lines_named(turn.text):
                turn.questions, turn.seeking = list(dict.fromkeys(KINDS[axis] for axis, _ in lines)), True
                turn.pairs = lines
                turn.regret = max(map(belief.expected_value, LINES)) - max(map(belief.expected_value, lines))
                turn.answered, turn.question_value, turn.gain, question = False, 0.0, 0.0, turn

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
        asked = np.array([_asked(state["treasure"], most) for state, _ in games]).reshape(-1, most + 1, 2)
        return {"greedy": Frontier(rewards=asked[:, :, 0], expected_gain=asked[:, :, 1])}

    def references(self, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        rewards = [[reward for reward, _ in _asked(state["treasure"], 1)] for state, _ in games]
        alone, asked = zip(*rewards, strict=True) if games else ((), ())
        return {
            "random": {"about": "a cell at random", "rewards": alone, "drawn": True},
            "one_question": {"about": "a cell after one question", "rewards": asked, "drawn": True},
        }


class Belief:
    """Belief of a seeker: `left[0]` has the rows that are not ruled out, `left[1]` the columns."""

    def __init__(self) -> None:
        self.left = ({0, 1, 2}, {0, 1, 2})

    def expected(self, treasure: Sequence[int] | None = None) -> float:
        """Returns the expected reward of a random remaining cell: in the seeker's belief, or in truth given the treasure."""
        hits = [treasure is None or treasure[axis] in self.left[axis] for axis in (0, 1)]
        return sum(hit / len(left) for hit, left in zip(hits, self.left, strict=True)) / 2

    def expected_value(self, line: Line) -> float:
        """What an honest answer about a row or a column adds to the reward, on average."""
        left = self.left[line[0]]
        return 0.5 / len(left) if line[1] in left and len(left) > 1 else 0.0

    def update(self, line: Line, yes: bool) -> None:
        """Takes in an answer; one that leaves nothing possible is not believed."""
        left = self.left[line[0]]
        left.intersection_update((left & {line[1]} if yes else left - {line[1]}) or left)


def _asked(treasure: Sequence[int], most: int) -> list[tuple[float, float]]:
    """After 0, 1, ..., `most` of the best questions, honestly answered: the mean reward, and what the next one is expected to add."""
    belief, found = Belief(), []
    for _ in range(most + 1):
        axis, index = max(LINES, key=belief.expected_value)
        expected_gain = belief.expected_value((axis, index))
        found.append(
            (belief.expected(), expected_gain if expected_gain else -math.inf)
        )  # it knows the cell: nothing is left to ask
        belief.update((axis, index), treasure[axis] == index)
    return found


class HonestPartner(Partner):
    """Guide that answers yes or no to a question about one row or one column, and nothing else."""

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "honest"}

    async def act(self, view: View) -> Turn:
        if view.private is None:
            raise PartnerFailure("The guide of the treasure game sits in seat 1: set data.seat to 0.")
        lines = lines_named(view.observation)
        if len(lines) != 1:
            return Turn("Ask me about one row or one column, by its letter.")
        return Turn("Yes." if self.answer(lines[0], view) else "No.")

    def answer(self, line: Line, view: View) -> bool:
        """Returns True if the guide states that the treasure is there."""
        return bool(view.private[line[0]] == line[1])
