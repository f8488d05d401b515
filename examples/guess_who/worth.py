"""Exact value of questions, by enumerating the remaining characters.

An asker knows who is left: whoever fits every answer so far. Its guess is one of them, so with n left it wins with chance 1/n. A question
splits them into those for whom the answer is yes and those for whom it is no:

    bits      what its answer is expected to tell: the entropy of that split
    promise   what it is expected to add to the chance to win: 1/n if both parts have somebody in them, else 0

since each part, of a share p_i of the n, is won with chance 1/(p_i n), and p_i times that is 1/n whatever p_i is. Hence after any sequence of
questions the expected chance is the number of parts over n. The next question alone does not tell good ones from bad: what matters is how
many parts there can be after several. That is what the askers here differ in:

    random      asks what splits the board, in a random order
    greedy      asks the question of the most bits
    lookahead   asks what leaves the most parts after so many questions: the best that can be done, by dynamic programming

Answers grow in worth: the third question of three adds more than the first. What the next one is expected to add is therefore taken as
what the next ones add at best, each: max over j of (chance after j more - chance now) / j.
"""

from __future__ import annotations

import math
import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.guess_who.board import GameBoard, Question
from examples.guess_who.traits import phrase
from slim_rl import Frontier


class Suspects:
    """Remaining characters given the answers so far; `update` adds an answer.

    Attributes:
        left: set of the remaining characters.
    """

    def __init__(self, board: GameBoard) -> None:
        self.board, self.left = board, board.everyone

    @property
    def names(self) -> list[str]:
        return self.board.among(self.left)

    @property
    def chance(self) -> float:
        """Probability of a correct guess, given the asker's knowledge."""
        return 1 / self.left.bit_count()

    @property
    def true_chance(self) -> float:
        """True probability of a correct guess: 0 if a false answer has ruled out the hidden character."""
        return self.chance if self.left & self.board.hidden else 0.0

    def splits(self, question: Question) -> bool:
        """Returns True if the answer is unknown."""
        return 0 < (self.left & self.board.questions.get(question, 0)) < self.left

    def bits(self, question: Question) -> float:
        """Returns the expected information of the answer, in bits."""
        return bits(self.left, self.board.questions.get(question, 0))

    def expected_value(self, question: Question) -> float:
        """What the answer is expected to add to the chance to win."""
        return self.chance if self.splits(question) else 0.0

    @property
    def best_expected_value(self) -> float:
        """That of the best question there is."""
        return self.chance if self.left.bit_count() > 1 else 0.0

    def update(self, question: Question, yes: bool) -> None:
        """Takes in an answer; one that leaves nobody is not believed."""
        fits = self.board.questions.get(question, 0)
        self.left = self.left & (fits if yes else ~fits) or self.left


def bits(left: int, fits: int) -> float:
    """Returns the entropy of a split, in bits."""
    number, yes = left.bit_count(), (left & fits).bit_count()
    shares = [share / number for share in (yes, number - yes) if share]
    return max(0.0, -sum(share * math.log2(share) for share in shares))


class Asker(ABC):
    """Simulated asker that receives true answers."""

    def __init__(self, board: GameBoard) -> None:
        self.board = board
        self._parts: dict[tuple[int, int, int], int] = {}

    @abstractmethod
    def next(self, left: int, asked: int, more: int) -> int | None:
        """Of the next question, those for whom the answer is yes, with `left` left after `asked` questions, and `more` to be asked. None:
        it has no question.
        """

    def parts(self, left: int, asked: int, more: int) -> int:
        """Returns the number of parts of `left` after `more` further questions, each chosen given the earlier answers."""
        key = (left, asked, more)
        if key not in self._parts:
            fits = self.next(left, asked, more) if more and left & (left - 1) else None
            halves = [] if fits is None else [half for half in (left & fits, left & ~fits) if half]
            self._parts[key] = sum(self.parts(half, asked + 1, more - 1) for half in halves) or 1
        return self._parts[key]

    def hope(self, left: int, asked: int) -> float:
        """What the next questions are expected to add to the chance, each, at best; -inf where there is nothing to ask."""
        number, best = left.bit_count(), -math.inf
        if number == 1:
            return best
        for more in range(1, len(self.board.questions) + 1):
            parts = self.parts(left, asked, more)
            best = max(best, (parts - 1) / number / more)
            if parts == number or self.next(left, asked + more - 1, 1) is None:
                break
        return best

    def after(self, number: int) -> int:
        """Returns the characters that remain in this game after `number` questions."""
        left = self.board.everyone
        for asked in range(number):
            fits = self.next(left, asked, number - asked)
            if fits is None:
                break
            left &= fits if fits & self.board.hidden else ~fits
        return left

    def curve(self, most: int) -> tuple[list[float], list[float]]:
        """After 0, 1, ..., `most` questions: the chance to win this game, and `hope`."""
        rewards: list[float] = []
        expected_gain: list[float] = []
        for number in range(most + 1):
            left = self.after(number)
            rewards.append(1 / left.bit_count())
            expected_gain.append(self.hope(left, number))
            if left == self.board.hidden:
                break
        missing = most + 1 - len(rewards)
        return rewards + [rewards[-1]] * missing, expected_gain + [expected_gain[-1]] * missing


class RandomAsker(Asker):
    def __init__(self, board: GameBoard, seed: int) -> None:
        super().__init__(board)
        self._order = [board.questions[question] for question in shuffled(board, seed)]

    def next(self, left: int, asked: int, more: int) -> int | None:
        return self._order[asked] if asked < len(self._order) else None


class GreedyAsker(Asker):
    def __init__(self, board: GameBoard) -> None:
        super().__init__(board)
        self._best: dict[int, int | None] = {}

    def next(self, left: int, asked: int, more: int) -> int | None:
        if left not in self._best:
            self._best[left] = max(_splitting(self.board, left), key=lambda fits: bits(left, fits), default=None)
        return self._best[left]


class LookaheadAsker(Asker):
    def next(self, left: int, asked: int, more: int) -> int | None:
        """The question after which there can be the most parts. None can leave more than 2 ** more, or than there are characters, so the
        first that does is taken."""
        best, found = 0, None
        most = min(left.bit_count(), 2**more)
        for fits in sorted(_splitting(self.board, left), key=lambda fits: -bits(left, fits)):
            parts = self.parts(left & fits, 0, more - 1) + self.parts(left & ~fits, 0, more - 1)
            if parts > best:
                best, found = parts, fits
            if parts == most:
                break
        return found

    def parts(self, left: int, asked: int, more: int) -> int:
        return super().parts(left, 0, more)  # what was asked before does not matter


def _splitting(board: GameBoard, left: int) -> list[int]:
    """Returns the distinct splits of `left` by one question, traits first."""
    found = dict.fromkeys(left & fits for fits in board.questions.values())
    return [fits for fits in found if 0 < fits < left]


def shuffled(board: GameBoard, seed: int) -> list[Question]:
    """Returns the questions about traits that split the board, in a random order."""
    found = [
        question for question, fits in board.questions.items() if question[0] == "trait" and 0 < fits < board.everyone
    ]
    random.Random(seed).shuffle(found)
    return found


def frontier(games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
    """Returns the frontiers of the greedy, random and lookahead asker; empty without games. Seat 1 knows the character and always wins."""
    curves: dict[str, list[tuple[list[float], list[float]]]] = {"greedy": [], "random": [], "lookahead": []}
    for state, seat in games:
        board = GameBoard.from_dict(state)
        own = zlib.crc32(f"{seed}/{board.id}".encode())
        askers = {
            "greedy": GreedyAsker(board),
            "random": RandomAsker(board, own),
            "lookahead": LookaheadAsker(board),
        }
        for name, asker in askers.items():
            knows = ([1.0] * (most + 1), [-math.inf] * (most + 1))
            curves[name].append(knows if seat == 1 else asker.curve(most))
    return {
        name: Frontier(np.array([one for one, _ in found]), np.array([one for _, one in found]))
        for name, found in curves.items()
        if found
    }


def references(games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
    """Returns the rewards of a guess without a question, and of one after the best questions that the game allows."""
    boards = [GameBoard.from_dict(state) for state, seat in games if seat == 0]
    if not boards:
        return {}
    best = [1 / LookaheadAsker(board).after(board.max_questions).bit_count() for board in boards]
    return {
        "random": {
            "about": "a guess without a question",
            "rewards": [1 / len(board.names) for board in boards],
            "drawn": True,
        },
        "ideal": {"about": "a guess after the best questions, as many as are allowed", "rewards": best, "drawn": True},
    }


def questions_worth_asking(game_state: Mapping[str, Any], seat: int, number: int, seed: int) -> list[str]:
    """At most `number` messages about random traits, each of which tells something after those before it."""
    board, worth = GameBoard.from_dict(game_state), []
    suspects = Suspects(board)
    for question in shuffled(board, seed):
        if seat == 0 and suspects.splits(question):
            worth.append(f"[message] Does it have {phrase(question[1])}?")
            suspects.update(question, board.truth(question))
    return worth[:number]
