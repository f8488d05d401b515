"""The worth of questions, against brute force and against the reference points of the 3x3 game."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as draw
from numpy.typing import NDArray

from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.value import Knowledge, expected_values
from slim_rl.games.matching.questions.value import frontier as arrays
from slim_rl.games.matching.state import GameState, MatchingSettings, lowest_score_of_best, score_of_best
from slim_rl.games.matching.study.credit import state_values
from slim_rl.lab.frontier import Frontier
from tests.made import STATE

Floats = NDArray[np.float64]
CELLS = list(product(range(3), repeat=2))
GAME = GameState.from_dict(STATE | {"scale2": 7.3})  # (0, 1) is the best of the two cells to learn
GAMES = list(generate_games(800, MatchingSettings(n=3, scales=False), seed=5))


def frontier(games: list[GameState], *arguments: Any) -> Frontier:
    """One asker's, as the lab reads it."""
    return Frontier(*arrays(games, [0] * len(games), *arguments))


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
            assert got[r, p] == pytest.approx(brute_promise(values, (r, p)), abs=0.01) and got[r, p] >= 0


@pytest.fixture
def asker() -> Knowledge:
    """Seat 0 of `GAME`."""
    return Knowledge(GAME, 0)


def test_expected_value_is_weighted_by_chance_of_sight(asker: Knowledge) -> None:
    """Against what a question brings on average, over all tables of a partner that sees as many cells and all answers."""
    values = np.where(asker.known, np.array(GAME.table), 50).astype(float)
    for r, p in np.argwhere(~asker.known):  # the partner sees 2 of 9
        assert asker.expected_value[r, p] == pytest.approx(2 / 9 * brute_promise(values, (r, p)) / 230, abs=1e-4)


def test_question_value_is_the_change_in_expected_score(asker: Knowledge) -> None:
    assert asker.informative((0, 1))
    first = asker.ask([(0, 1)], [(0, 1)])  # 180 on the diagonal; then 90 + 50 + 60
    assert (first.value, first.gain) == pytest.approx((20 / 230, (90 + 80 + 60 - 180) / 230))
    assert not asker.informative((0, 1))
    second = asker.ask([(1, 0)], [(1, 0)])
    assert (second.value, second.gain) == pytest.approx((30 / 230, 0.0))
    assert asker.ask([(1, 0)], [(1, 0)]).value == 0.0  # it knew
    assert Knowledge(GAME, 0).update(CELLS) == pytest.approx((50 / 230, 50 / 230)), "all known is the optimum"


def test_regret_is_against_the_best_promise_that_is_not_refused(asker: Knowledge) -> None:
    top = max(CELLS, key=lambda cell: asker.expected_value[cell])
    before = asker.expected_value.copy()
    assert asker.ask([top], []).regret == 0.0
    assert asker.ask([(0, 0)], []).regret == pytest.approx(before[top])  # it sees that cell itself
    assert asker.ask([(0, 0), top], []).regret == 0.0
    assert asker.ask([], [(0, 1)]).regret is None
    asker = Knowledge(GAME, 0)
    assert asker.ask([top], [], refused=[top]).regret == 0.0
    assert asker.expected_value[top] == 0.0 and not asker.known[top]
    assert all(asker.expected_value[cell] == before[cell] for cell in CELLS if cell != top)
    again = asker.ask([top], [])
    assert again.regret == pytest.approx(asker.expected_value.max()) and again.regret > 0
    assert asker.ask([(0, 1)], [(0, 1)], refused=[]).value != 0.0, "it may still be told"


def test_question_rank_is_by_expected_value_of_information() -> None:
    def asker() -> Knowledge:
        one = Knowledge(GAME, 0)
        one.ask([(0, 1)], [(0, 1)])
        return one

    unknown = [(r, p) for r, p in CELLS if r != p and (r, p) != (0, 1)]
    ranks = {cell: asker().ask([cell], []).rank for cell in unknown}
    expected_value = asker().expected_value
    for cell in unknown:
        others = [expected_value[other] - expected_value[cell] for other in unknown if other != cell]
        ties = sum(abs(each) < 1e-9 for each in others)
        assert ranks[cell] == (sum(each < -1e-9 for each in others) + ties / 2) / 4
    assert sum(rank or 0 for rank in ranks.values()) / 5 == pytest.approx(0.5) and len(set(ranks.values())) > 1


def test_known_or_repeated_question_is_redundant_and_unranked(asker: Knowledge) -> None:
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


def test_what_neither_player_sees_counts_50_and_is_asked_once(asker: Knowledge) -> None:
    assert asker.expected_value[0, 2] > 0
    assert asker.ask([(0, 2)], [], [(0, 2)]).value == asker.expected_value[0, 2] == 0.0
    assert asker.update([(1, 2)]) == (0.0, 0.0)  # the partner cannot know it, whatever it says
    assert asker.update([], [(0, 1)]) == (0.0, 0.0)  # it does see that one


def test_frontier_meets_the_reference_points_and_greedy_is_above() -> None:
    random, greedy = (frontier(GAMES, 9, strategy).rewards.mean(axis=0) for strategy in ("random", "greedy"))
    assert random[:5] == pytest.approx([0.78, 0.845, 0.89, 0.935, 0.965], abs=0.01) and random[9] == 1.0
    assert random[0] == greedy[0] and (greedy[1:3] > random[1:3] + 0.005).all()
    assert (np.diff(greedy) >= 0).all() and (np.diff(random) >= 0).all()


def test_frontier_is_the_same_for_a_seed() -> None:
    def of(seed: int) -> list[list[float]]:
        return frontier(GAMES[:99], 3, "random", seed).rewards.tolist()

    assert of(1) == of(1) != of(2)
    assert frontier([GAME], 2).rewards.shape == frontier([GAME], 2).expected_gain.shape == (1, 3)
    assert frontier([], 2).rewards.shape == (0, 3)


@given(draw.integers(2, 4), draw.integers(0, 2**31))
def test_plans_that_tie_count_by_their_mean_or_their_lowest(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    believed, table = rng.integers(0, 3, (n, n)), rng.integers(0, 100, (n, n))
    plans = list(permutations(range(n)))
    believes = [sum(believed[r][p] for r, p in enumerate(plan)) for plan in plans]
    ties = [plan for plan, belief in zip(plans, believes, strict=True) if belief == max(believes)]
    scores = [sum(table[r][p] for r, p in enumerate(plan)) for plan in ties]
    assert score_of_best(believed[None], table[None])[0] == pytest.approx(np.mean(scores))
    many = (np.repeat(values[..., None], 130, axis=-1).astype(np.int16) for values in (believed, table))
    assert lowest_score_of_best(*many).tolist() == [min(scores)] * 130


def test_state_values_are_of_what_was_known_before_each_turn(asker: Knowledge) -> None:
    said = {"kind": "message"}
    turns = [
        Turn("[message] What is Ava Li on Electra?", 0, "policy", said),
        Turn("wrong", 1, "partner", None, "no tag"),
        Turn(f"[message] Ava Li on Electra: {GAME.displayed(1)[0][1]}.", 1, "partner", said),
        Turn("nonsense", 0, "policy", None, "no tag"),
        Turn("[message] What is Ava Li on Electra?", 0, "policy", said),
    ]
    dialogue = Dialogue("d", "g", 0, 0, GAME.to_dict(), {}, {}, turns=turns)
    annotate(dialogue)
    before, (value, _) = asker.expected, asker.update([(0, 1)])
    expected = pytest.approx([before, before + value, before + value], abs=1e-6)
    assert state_values(dialogue) == expected
    assert [turn.state_value for turn in turns if turn.role == "policy"] == expected
    assert turns[0].question_value == pytest.approx(value, abs=1e-6)
