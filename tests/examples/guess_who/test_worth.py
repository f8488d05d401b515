"""What questions are worth, on boards that can be counted by hand, and against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from examples.guess_who import GuessWhoEnv
from examples.guess_who.board import GameBoard, Question
from examples.guess_who.reading import asks, read
from examples.guess_who.worth import LookaheadAsker, Suspects, frontier
from slim_rl.lab import gap as ledger
from slim_rl.lab.askers import Askers
from slim_rl.lab.frontier import Frontier
from slim_rl.measured import measured
from tests.examples.guess_who.made import GAME, STATE

GLASSES, HAT, RED = ("trait", "glasses"), ("trait", "hat"), ("trait", "red hair")


def test_bits_and_promise_are_counted_over_who_is_left() -> None:
    suspects = Suspects(GameBoard.from_dict(STATE))
    assert suspects.chance == 1 / 4 and suspects.names == ["Mara", "Kira", "Yuri", "Rosa"]
    assert suspects.bits(GLASSES) == 1.0 and suspects.expected_value(GLASSES) == 1 / 4
    assert (
        suspects.bits(HAT) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3))
        and suspects.expected_value(HAT) == 1 / 4
    )
    assert suspects.bits(RED) == suspects.expected_value(RED) == 0.0
    suspects.update(GLASSES, True)
    assert suspects.names == ["Mara", "Kira"] and suspects.expected_value(("character", "Mara")) == 1 / 2
    suspects.update(RED, True)
    assert suspects.names == ["Mara", "Kira"], "nobody would be left: not believed"
    suspects.update(HAT, True)
    assert (suspects.chance, suspects.true_chance, suspects.best_expected_value) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_promise_is_the_expected_change_of_the_chance_to_win(seed: int) -> None:
    """Every hidden character in turn, every question, after every first question."""
    board = GameBoard.dealt(seed, 6, 8)
    for first, question in itertools.product(board.questions, repeat=2):
        changes: list[float] = []
        promised = 0.0
        for secret in board.names:
            game = GameBoard(board.characters, secret)
            suspects = Suspects(game)
            suspects.update(first, game.truth(first))
            before = suspects.chance
            promised += suspects.expected_value(question) / 6
            suspects.update(question, game.truth(question))
            changes.append(suspects.chance - before)
        assert sum(changes) / 6 == pytest.approx(promised)


def _most_parts(board: GameBoard, left: int, more: int) -> int:
    """By brute force."""
    if more == 0:
        return 1
    halves = [(left & fits, left & ~fits) for fits in board.questions.values()]
    return max(sum(_most_parts(board, half, more - 1) for half in pair if half) for pair in halves)


@pytest.mark.parametrize("seed", range(3))
def test_looking_ahead_is_the_best_that_can_be_done(seed: int) -> None:
    board = GameBoard.dealt(seed, 6, 8)
    asker = LookaheadAsker(board)
    for more in range(4):
        assert asker.parts(board.everyone, 0, more) == _most_parts(board, board.everyone, more)


def test_askers_on_paper_rise_to_the_truth_in_their_order() -> None:
    boards = [GameBoard.dealt(seed, 8, 8) for seed in range(20)]
    games = [(GameBoard(board.characters, secret).to_dict(), 0) for board in boards for secret in board.names]
    curves = {name: curve.rewards.mean(axis=0) for name, curve in frontier(games, 12).items()}
    assert set(curves) == {"greedy", "random", "lookahead"}
    assert all(curve[0] == pytest.approx(1 / 8) and (np.diff(curve) >= 0).all() for curve in curves.values())
    assert (curves["lookahead"] >= curves["greedy"] - 1e-12).all() and (
        curves["greedy"] >= curves["random"] - 1e-12
    ).all()
    assert curves["lookahead"][3] == pytest.approx(1.0, abs=0.05) and curves["greedy"][8] == 1.0
    assert curves["random"][3] < 0.7


def test_asker_expects_what_it_gains_and_stops_at_its_cost() -> None:
    games = [(GameBoard(GameBoard.from_dict(STATE).characters, name).to_dict(), 0) for name in STATE["characters"]]
    greedy = Frontier(*frontier(games, 4)["greedy"])
    assert greedy.expected_gain[:, 0] == pytest.approx(3 / 8), "two questions take the chance from 1/4 to 1: 3/8 each"
    assert greedy.expected_gain[:, 1] == pytest.approx(1 / 2) and (greedy.expected_gain[:, 2] == -math.inf).all()
    assert greedy.rewards.mean(axis=0).tolist() == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert greedy.stops(0.37).tolist() == [2] * 4 and greedy.stops(0.38).tolist() == [0] * 4
    assert frontier([], 4) == {} and frontier([(STATE, 1)], 2)["greedy"].rewards.tolist() == [[1.0, 1.0, 1.0]]


def test_the_ledger_of_asking_reads_it_as_it_stands() -> None:
    ideal = Askers().of(GAME, [("a", 0), ("b", 0)], lambda i: STATE)
    assert ideal is not None
    lost = ledger.losses(ideal, [0, 2], [0.25, 1.0], [0.0, 1.0], 0.02)
    assert lost["lost"] == pytest.approx([0.96, 0.0]) and lost["lost_by_use"] == pytest.approx([0.25, 0.0])
    parts = [lost[name] for name in lost if name != "lost"]
    assert np.sum(parts, axis=0) == pytest.approx(lost["lost"])


def test_reference_lines() -> None:
    lines = measured(GuessWhoEnv).references([(STATE, 0)])
    assert {name: line["rewards"] for name, line in lines.items()} == {"random": [0.25], "ideal": [1.0]}
    assert measured(GuessWhoEnv).references([]) == {}


def test_questions_worth_asking_tell_something_each() -> None:
    for seed in range(20):
        state = GameBoard.dealt(seed, 12, 8).to_dict()
        suspects = Suspects(GameBoard.from_dict(state))
        found = measured(GuessWhoEnv).questions_worth_asking(state, 0, 20, seed)
        for text in found:
            question: Question | None = read(text).question
            assert asks(text) and question is not None and suspects.splits(question)
            suspects.update(question, suspects.board.truth(question))
        assert suspects.names == [state["secret"]]
        assert measured(GuessWhoEnv).questions_worth_asking(state, 0, 2, seed) == found[:2]
    assert measured(GuessWhoEnv).questions_worth_asking(STATE, 1, 2, 0) == []
