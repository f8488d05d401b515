from __future__ import annotations

import random

import pytest

from slim_rl.games.matching.env import MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.optimum import best_assignment
from slim_rl.games.matching.partners.judging import estimates, judge
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.settings import MatchingSettings

N = None


def view(table: list[list[int | None]], scale: float = 1.0) -> MatchingView:
    rows = tuple(tuple(row) for row in table)
    return MatchingView(seat=1, roster=Roster.default(len(rows)), table=rows, scale=scale, pending=None, turns_left=10)


def seen(state: GameState, seat: int) -> MatchingView:
    return MatchingView(seat, state.roster, state.displayed(seat), state.scale(seat), None, 10)


def test_unknown_cells_count_as_expected() -> None:
    assert estimates(view([[90, N], [N, 10]]), {}) == ((90, 50), (50, 10))
    assert estimates(view([[900, N], [N, 100]], scale=10.0), {}) == ((900, 500), (500, 100))


def test_threshold_is_a_fraction_of_the_own_best() -> None:
    game = view([[90, N], [N, 50]])  # best 140, the other plan 100
    assert judge(game, (0, 1), {}, 1.0).accepts
    verdict = judge(game, (1, 0), {}, 0.75)
    assert (verdict.value, verdict.best, verdict.accepts) == (100, 140, False)
    assert judge(game, (1, 0), {}, 100 / 140).accepts
    assert judge(view([[99, 0], [0, 99]]), (1, 0), {}, 0.0).accepts


def test_what_was_told_counts_for_the_plan_and_for_the_own_best() -> None:
    game = view([[90, N], [N, 50]])
    assert judge(game, (1, 0), {(0, 1): 95.0, (1, 0): 90.0}, 0.75).accepts
    assert not judge(game, (0, 1), {(0, 1): 99.0, (1, 0): 99.0}, 0.75).accepts


def test_own_eyes_come_before_what_was_told() -> None:
    assert estimates(view([[90, N], [N, 10]]), {(0, 0): 5.0, (0, 1): 70.0}) == ((90, 70), (50, 10))


def test_doubts_are_the_plans_pairs_below_expectation() -> None:
    game = view([[10, 99, N], [N, 49, 50], [N, N, 99]])
    assert judge(game, (0, 1, 2), {}, 0.75).doubts == ((0, 0), (1, 1))
    assert judge(game, (0, 2, 1), {(2, 1): 3.0}, 0.75).doubts == ((0, 0), (2, 1))
    scaled = view([[int(50 * 3.7), N], [N, N]], scale=3.7)
    assert judge(scaled, (0, 1), {}, 0.75).doubts == ()  # cut to an int, it is still worth what an unknown cell is


def test_scales_are_matched_on_a_cell_both_see() -> None:
    # own scale 2; the other shows the same score of 40 as 200, so its scale is 5 and its 450 is a score of 90
    cell = estimates(view([[80, N], [N, N]], scale=2.0), {(0, 0): 200.0, (0, 1): 450.0})[0][1]
    assert cell == pytest.approx(180, rel=0.02)


def test_without_a_shared_cell_a_told_value_is_scaled_by_what_scales_are_likely() -> None:
    game = view([[N, N], [N, N]], scale=4.0)
    high = estimates(game, {(0, 0): 900.0, (1, 1): 90.0})  # 900 means a scale above 9
    assert 3.5 * 90 < high[0][0] <= 99 * 4.0
    assert high[1][1] == pytest.approx(high[0][0] / 10)
    assert 0 < estimates(game, {(0, 0): 40.0})[0][0] < 4.0 * 40  # the scale may be anything from 1 to 10
    assert estimates(game, {(0, 0): 5000.0})[0][0] == 99 * 4.0  # no score is higher


def test_scaled_estimates_of_told_values_are_near_the_truth() -> None:
    """On generated games with the other's whole table told, estimated values miss the true ones by a few points."""
    misses = []
    for state in generate_games(20, MatchingSettings(n=4, scales=True), seed=3):
        told = {
            (r, p): float(value)
            for r, row in enumerate(state.displayed(0))
            for p, value in enumerate(row)
            if value is not None
        }
        if told:
            table = estimates(seen(state, 1), told)
            misses += [abs(table[r][p] / state.scale2 - state.table[r][p]) for r, p in told]
    assert sum(misses) / len(misses) < 8


@pytest.mark.parametrize("scales", [False, True])
def test_acceptance_on_8x8(scales: bool) -> None:
    """0.75 accepts every pooled-optimal plan, few of the other seat's own plans, and a good third of random ones."""
    rng = random.Random(0)
    pooled, other, chance = [], [], []
    for state in generate_games(60, MatchingSettings(n=8, scales=scales), seed=2):
        for seat in (0, 1):
            game = seen(state, seat)
            unknown = 50 * state.scale(1 - seat)
            its = [[unknown if value is None else value for value in row] for row in state.displayed(1 - seat)]
            pooled.append(judge(game, state.best(), {}, 0.75).accepts)
            other.append(judge(game, best_assignment(its)[0], {}, 0.75).accepts)
            chance.append(judge(game, tuple(rng.sample(range(8), 8)), {}, 0.75).accepts)
    assert all(pooled)
    assert sum(other) / len(other) < 0.2
    assert 0.2 < sum(chance) / len(chance) < 0.55
