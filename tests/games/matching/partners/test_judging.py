from __future__ import annotations

import random

import pytest

from slim_rl.games.matching.env import MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.judging import estimates, judge
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState, MatchingSettings, best_assignment

N = None


def view(table: list[list[int | None]], scale: float = 1.0) -> MatchingView:
    rows = tuple(tuple(row) for row in table)
    return MatchingView(seat=1, roster=Roster.default(len(rows)), table=rows, scale=scale, pending=None, turns_left=10)


def seen(state: GameState, seat: int) -> MatchingView:
    return MatchingView(seat, state.roster, state.displayed(seat), state.scale(seat), None, 10)


def test_unknown_cells_count_as_expected() -> None:
    assert estimates(view([[90, N], [N, 10]])) == ((90, 50), (50, 10))
    assert estimates(view([[900, N], [N, 100]], scale=10.0)) == ((900, 500), (500, 100))


def test_threshold_is_a_fraction_of_the_own_best() -> None:
    game = view([[90, N], [N, 50]])  # best 140, the other plan 100
    assert judge(game, (0, 1), 1.0).accepts
    verdict = judge(game, (1, 0), 0.75)
    assert (verdict.value, verdict.best, verdict.accepts) == (100, 140, False)
    assert judge(game, (1, 0), 100 / 140).accepts
    assert judge(view([[99, 0], [0, 99]]), (1, 0), 0.0).accepts


@pytest.mark.parametrize("n", [3, 8])
def test_own_best_plan_is_accepted_at_any_fraction(n: int) -> None:
    for state in generate_games(300, MatchingSettings(n=n, hardness=0, scales=True), seed=3):
        game = seen(state, 1)
        assert judge(game, best_assignment(estimates(game))[0], 1.0).accepts


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
            pooled.append(judge(game, state.best(), 0.75).accepts)
            other.append(judge(game, best_assignment(its)[0], 0.75).accepts)
            chance.append(judge(game, tuple(rng.sample(range(8), 8)), 0.75).accepts)
    assert all(pooled)
    assert sum(other) / len(other) < 0.2
    assert 0.2 < sum(chance) / len(chance) < 0.55
