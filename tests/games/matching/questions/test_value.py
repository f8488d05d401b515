"""The worth of questions, against brute force and against the reference points of the 3x3 game."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from numpy.typing import NDArray

from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.value import Knowledge, expected_values
from slim_rl.games.matching.questions.value import frontier as arrays
from slim_rl.games.matching.state import GameState, MatchingSettings, score_of_best
from slim_rl.games.matching.study.credit import state_values
from slim_rl.lab.frontier import Frontier

Floats = NDArray[np.float64]


def frontier(*arguments: Any) -> Frontier:
    """One asker's, as the lab reads it."""
    return Frontier(*arrays(*arguments))


def best(values: Floats) -> tuple[float, tuple[int, ...]]:
    n = len(values)
    return max((float(sum(values[r, c] for r, c in enumerate(plan))), plan) for plan in permutations(range(n)))


def brute_promise(values: Floats, cell: tuple[int, int]) -> float:
    """The mean of the best score over a fine grid of answers, less the best score with 50 there."""
    with_cell, without = values.copy(), values.copy()
    with_cell[cell], without[cell] = 1e6, -1e6
    rest, other = best(with_cell)[0] - 1e6, best(without)[0]
    answers = (np.arange(4000) + 0.5) / 40
    return float(np.maximum(other, rest + answers).mean() - max(other, rest + 50))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_promises_are_exact(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(6):
        known = rng.random((n, n)) < 0.5
        values = np.where(known, rng.integers(0, 100, (n, n)), 50).astype(float)
        got = expected_values(values[None], np.array([best(values)[1]]))[0]
        for r, p in np.argwhere(~known):
            assert got[r, p] == pytest.approx(brute_promise(values, (r, p)), abs=0.01)
            assert got[r, p] >= 0


@pytest.fixture
def game() -> GameState:
    """Seat 0 sees the diagonal; seat 1 sees (0, 1), the best cell, and (1, 0)."""
    return GameState.from_dict(
        {
            "table": [[60, 90, 50], [80, 60, 50], [50, 50, 60]],
            "mask1": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
            "mask2": [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
            "scale1": 1.0,
            "scale2": 7.3,
            "best_assignment_reward": 230,
        }
    )


def test_question_value_is_the_change_in_expected_score(game: GameState) -> None:
    asker = Knowledge(game, 0)
    assert asker.informative((0, 1))
    first = asker.ask([(0, 1)], [(0, 1)])  # 180 on the diagonal; then 90 + 50 + 60
    assert first.value == pytest.approx(20 / 230)
    assert first.gain == pytest.approx((90 + 80 + 60 - 180) / 230)
    assert not asker.informative((0, 1))
    second = asker.ask([(1, 0)], [(1, 0)])
    assert second.value == pytest.approx(30 / 230)
    assert second.gain == 0.0
    assert asker.ask([(1, 0)], [(1, 0)]).value == 0.0  # it knew


def test_regret_is_against_the_best_promise(game: GameState) -> None:
    asker = Knowledge(game, 0)
    cells = [(r, p) for r in range(3) for p in range(3)]
    top = max(cells, key=lambda cell: asker.expected_value[cell])
    assert asker.ask([top], []).regret == 0.0
    assert asker.ask([(0, 0)], []).regret == pytest.approx(asker.expected_value[top])  # it sees that cell itself
    assert asker.ask([(0, 0), top], []).regret == 0.0
    assert asker.ask([], [(0, 1)]).regret is None


def test_question_rank_is_by_expected_value_of_information(game: GameState) -> None:
    def asker() -> Knowledge:
        one = Knowledge(game, 0)
        one.ask([(0, 1)], [(0, 1)])
        return one

    unknown = [(r, p) for r in range(3) for p in range(3) if r != p and (r, p) != (0, 1)]
    ranks = {cell: asker().ask([cell], []).rank for cell in unknown}
    expected_value = asker().expected_value
    for cell in unknown:
        others = [expected_value[other] for other in unknown if other != cell]
        ties = sum(abs(each - expected_value[cell]) < 1e-9 for each in others)
        assert ranks[cell] == (sum(each < expected_value[cell] - 1e-9 for each in others) + ties / 2) / 4
    assert sum(rank or 0 for rank in ranks.values()) / 5 == pytest.approx(0.5) and len(set(ranks.values())) > 1


def test_known_or_repeated_question_is_redundant_and_unranked(game: GameState) -> None:
    asker = Knowledge(game, 0)
    assert asker.unknown == 6
    assert asker.ask([(0, 1)], [(0, 1)]).redundant == () and asker.unknown == 5
    for seen_told_or_in_vain in ((0, 0), (0, 1), (0, 2), (0, 2)):
        again = asker.ask([seen_told_or_in_vain], [])
    assert again.redundant == ((0, 2),) and again.rank is None
    assert asker.ask([(0, 0)], []).redundant == ((0, 0),) and asker.ask([(0, 0)], []).rank is None
    several = asker.ask([(0, 1), (1, 2)], [])
    assert several.redundant == ((0, 1),) and several.rank is None, "a question about several pairs has none"
    for last in ((1, 0), (2, 0)):
        assert asker.ask([last], []).rank is not None
    assert asker.ask([(2, 1)], []).rank is None, "there was no other to ask about"


def test_what_neither_player_sees_counts_50_and_is_asked_once(game: GameState) -> None:
    asker = Knowledge(game, 0)
    assert asker.expected_value[0, 2] > 0
    assert asker.ask([(0, 2)], [], [(0, 2)]).value == 0.0
    assert asker.expected_value[0, 2] == 0.0
    assert asker.update([(1, 2)]) == (0.0, 0.0)  # the partner cannot know it, whatever it says
    assert asker.update([], [(0, 1)]) == (0.0, 0.0)  # it does see that one


def test_expected_value_is_weighted_by_chance_of_sight(game: GameState) -> None:
    """Against what a question brings on average, over all tables of a partner that sees as many cells and all answers."""
    asker = Knowledge(game, 0)
    known = np.array(game.mask1, dtype=bool)
    values = np.where(known, np.array(game.table), 50).astype(float)
    seen = 2 / 9  # the share of its table that the partner sees
    for r, p in np.argwhere(~known):
        brought = seen * brute_promise(values, (r, p)) + (1 - seen) * 0.0
        assert asker.expected_value[r, p] == pytest.approx(brought / 230, abs=1e-4)


def test_a_refused_pair_promises_nothing_and_may_still_be_told(game: GameState) -> None:
    asker = Knowledge(game, 0)
    cells = [(r, p) for r in range(3) for p in range(3)]
    top = max(cells, key=lambda cell: asker.expected_value[cell])
    before = asker.expected_value.copy()
    assert asker.ask([top], [], refused=[top]).regret == 0.0
    assert asker.expected_value[top] == 0.0 and not asker.known[top]
    assert all(asker.expected_value[cell] == before[cell] for cell in cells if cell != top)
    again = asker.ask([top], [])
    assert again.regret == pytest.approx(asker.expected_value.max()) and again.regret > 0
    assert asker.ask([(0, 1)], [(0, 1)], refused=[]).value != 0.0


def test_all_known_is_the_optimum(game: GameState) -> None:
    asker = Knowledge(game, 0)
    value, gain = asker.update([(r, p) for r in range(3) for p in range(3)])
    assert value == pytest.approx(50 / 230)
    assert gain == pytest.approx(50 / 230)


GAMES = list(generate_games(800, MatchingSettings(n=3, scales=False), seed=5))
SEATS = [0] * len(GAMES)


def test_random_frontier_meets_the_reference_points() -> None:
    curve = frontier(GAMES, SEATS, 9, "random").rewards.mean(axis=0)
    assert curve[:5] == pytest.approx([0.78, 0.845, 0.89, 0.935, 0.965], abs=0.01)
    assert curve[9] == 1.0


def test_greedy_is_above_random_and_both_rise() -> None:
    random = frontier(GAMES, SEATS, 6, "random").rewards.mean(axis=0)
    greedy = frontier(GAMES, SEATS, 6, "greedy").rewards.mean(axis=0)
    assert random[0] == greedy[0]
    assert (greedy[1:3] > random[1:3] + 0.005).all()
    assert (np.diff(greedy) >= 0).all()
    assert (np.diff(random) >= 0).all()


def test_frontier_is_the_same_for_a_seed(game: GameState) -> None:
    def of(seed: int) -> list[list[float]]:
        return frontier(GAMES[:99], SEATS[:99], 3, "random", seed).rewards.tolist()

    assert of(1) == of(1) != of(2)
    assert frontier([game], [0], 2).rewards.shape == frontier([game], [0], 2).expected_gain.shape == (1, 3)
    assert frontier([], [], 2).rewards.shape == (0, 3)


@settings(deadline=None)
@given(draw.integers(2, 4), draw.integers(0, 2**31))
def test_plans_that_tie_count_by_their_mean(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    believed, table = rng.integers(0, 3, (n, n)), rng.integers(0, 100, (n, n))
    plans = list(permutations(range(n)))
    believes = [sum(believed[r][p] for r, p in enumerate(plan)) for plan in plans]
    scores = [
        sum(table[r][p] for r, p in enumerate(plan))
        for plan, belief in zip(plans, believes, strict=True)
        if belief == max(believes)
    ]
    assert score_of_best(believed[None], table[None])[0] == pytest.approx(np.mean(scores))


def test_state_values_are_of_what_was_known_before_each_turn(game: GameState) -> None:
    r, p = next((r, p) for r in range(game.n) for p in range(game.n) if game.mask2[r][p] and not game.mask1[r][p])
    roster = game.roster
    names = f"{roster.reviewers[r]} on {roster.short_papers[p]}"
    said = {"kind": "message"}
    turns = [
        Turn(f"[message] What is {names}?", 0, "policy", said),
        Turn("wrong", 1, "partner", None, "no tag"),
        Turn(f"[message] {names}: {game.displayed(1)[r][p]}.", 1, "partner", said),
        Turn("nonsense", 0, "policy", None, "no tag"),
        Turn(f"[message] What is {names}?", 0, "policy", said),
    ]
    dialogue = Dialogue("d", "g", 0, 0, game.to_dict(), {}, {}, turns=turns)
    annotate(dialogue)
    knowledge = Knowledge(game, 0)
    before = knowledge.expected
    value, _ = knowledge.update([(r, p)])
    assert state_values(dialogue) == pytest.approx([before, before + value, before + value])
    assert [turn.state_value for turn in turns if turn.role == "policy"] == pytest.approx(
        state_values(dialogue), abs=1e-6
    )
    assert turns[0].question_value == pytest.approx(value, abs=1e-6)
