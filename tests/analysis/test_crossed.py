"""Contrasts over seeds and games: against known formulas, and by simulated coverage."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as draw
from scipy import stats

from slim_rl import statistics as st


def played(
    rng: np.random.Generator, runs: int, games: np.ndarray, of_run: float = 1.0, noise: float = 1.0, mean: float = 0.0
) -> pd.DataFrame:
    """Runs by games: mean + the run's own + the game's own + noise."""
    return pd.DataFrame(mean + rng.normal(0, of_run, (runs, 1)) + games + rng.normal(0, noise, (runs, len(games))))


def test_with_many_games_it_is_welchs_test_of_the_runs() -> None:
    rng = np.random.default_rng(0)
    arms = [played(rng, 6, np.zeros(4000)), played(rng, 4, np.zeros(4000), of_run=3)]
    got = st.contrast(arms, (1, -1))
    want = stats.ttest_ind(*(arm.mean(axis=1) for arm in arms), equal_var=False)
    interval = want.confidence_interval(0.95)
    assert (got.low, got.high) == pytest.approx((interval.low, interval.high), rel=0.01)
    assert got.p == pytest.approx(want.pvalue, rel=0.02)


def test_with_runs_alike_it_is_the_t_test_of_the_games() -> None:
    change = np.random.default_rng(1).normal(0.2, 1, 60)
    got = st.contrast([pd.DataFrame([change] * 5)], (1,))
    assert got.p == pytest.approx(stats.ttest_1samp(change, 0).pvalue)
    assert got.value == pytest.approx(change.mean())


def test_the_error_is_that_of_two_way_clustering() -> None:
    """Cameron, Gelbach and Miller's, as statsmodels has it, but for the parts it counts twice and its small-sample factors."""
    rng = np.random.default_rng(2)
    arm = played(rng, 40, rng.normal(0, 2, 300))
    y = arm.to_numpy().ravel()
    groups = np.stack([np.repeat(np.arange(40), 300), np.tile(np.arange(300), 40)], axis=1)
    fit = sm.OLS(y, np.ones(len(y))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    assert st.contrast([arm], (1,)).se == pytest.approx(fit.bse[0], rel=0.03)


@pytest.mark.parametrize(
    ("of_run", "of_game", "noise", "weights"),
    [(1, 0, 1, (-1, 1)), (0.3, 1, 1, (-1, 1)), (0.05, 0.5, 3, (-1, 1)), (1, 0.5, 1, (-0.5, 0, 0.5))],
)
def test_intervals_cover_the_truth_in_95_of_100(
    of_run: float, of_game: float, noise: float, weights: tuple[float, ...]
) -> None:
    """A difference of changes, or a slope: the arms' games have effects that differ, seeds have theirs, and so has each dialogue."""
    rng, covered = np.random.default_rng(3), []
    for _ in range(150):
        shared = rng.normal(0, 1, 30)
        games = [shared + rng.normal(0, of_game, 30) for _ in weights]
        arms = [played(rng, 6, each, of_run, noise, mean=number) for number, each in enumerate(games)]
        got = st.contrast(arms, weights)
        covered.append(got.low <= 1 <= got.high)
    assert 0.91 <= np.mean(covered) <= 0.995  # wider than need be where seeds hardly differ, never narrower


def test_every_interval_says_over_what() -> None:
    """With one run that is games; with one number a run, seeds; and which of them was drawn anew decides how wide it is."""
    rng = np.random.default_rng(8)
    arm = played(rng, 5, rng.normal(0, 0.1, 40), of_run=2)
    both, games = st.contrast([arm], (1,)), st.contrast([arm], (1,), over="games")
    assert (both.over, games.over, st.contrast([arm[[0]]], (1,)).over) == ("seeds and games", "games", "seeds")
    assert both.high - both.low > 3 * (games.high - games.low)
    one = st.arm_mean(arm.iloc[:1])
    want = stats.ttest_1samp(arm.iloc[0], 0).confidence_interval(0.95)
    assert (one.over, one.low, one.high) == ("games", pytest.approx(want.low), pytest.approx(want.high))
    runs = stats.ttest_1samp(arm[0], 0)
    seeds = st.contrast([arm[[0]]], (1,))
    assert (seeds.low, seeds.p) == (pytest.approx(runs.confidence_interval(0.95).low), pytest.approx(runs.pvalue))


def test_missing_dialogues_are_left_out() -> None:
    arm = played(np.random.default_rng(5), 4, np.zeros(50))
    part = st.contrast([arm.mask(np.random.default_rng(6).random(arm.shape) < 0.1)], (1,))
    assert part.value == pytest.approx(st.contrast([arm], (1,)).value, abs=0.1) and part.clusters == 50


def test_what_cannot_be_known_has_no_interval() -> None:
    one, none = pd.DataFrame([[1.0, 2.0]]), pd.DataFrame([[np.nan, np.nan]])
    alone = st.contrast([one, one], (1, -1))
    assert alone.value == 0 and np.isnan(alone.low) and "one run" in alone.note
    assert "no data" in st.contrast([one, none], (1, -1)).note
    lonely = st.contrast([one[[0]]], (1,), over=st.GAMES)
    assert np.isnan(lonely.low) and lonely.note == st.FEW
    assert np.isnan(st.permute([np.ones(1)], [1]).p)


@settings(deadline=None)
@given(draw.lists(draw.lists(draw.sampled_from([0.0, 0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=2, max_size=5))
def test_intervals_of_shares_stay_in_their_range(rows: list[list[float]]) -> None:
    found = st.contrast([pd.DataFrame(rows)], (1,), limit=1)
    mean = st.arm_mean(pd.DataFrame(rows), st.SHARE)
    assert -1e-9 <= mean.low <= found.value + 1e-9 and found.value - 1e-9 <= mean.high <= 1 + 1e-9
    assert -1 <= found.low <= found.high <= 1


def test_permutation_says_how_small_its_p_can_be() -> None:
    low, high = np.arange(8.0), np.arange(8.0) + 20
    assert st.permute([high, low], (1, -1)) == st.Permutation(pytest.approx(2 / 12870), 2 / 12870, True)
    assert st.permute([low + 1], (1,)) == st.Permutation(2 / 256, 2 / 256, True)
    uneven = st.permute([np.array([5.0, 6, 7]), np.array([1.0, 2])], (1, -1))
    assert uneven.p == uneven.least == 0.2 == st.least_p([3, 2])
    many = st.permute([np.arange(8.0) + 9 * dose for dose in range(5)], (-2, -1, 0, 1, 2))
    assert not many.exact and many.p == pytest.approx(many.least)


def test_equivalence_needs_a_narrow_interval_inside_the_margin() -> None:
    rng = np.random.default_rng(6)
    games = rng.normal(size=200)
    near = st.contrast([played(rng, 8, games, of_run=0.01, noise=0.1) for _ in range(2)], (1, -1))
    wide = st.contrast([played(rng, 8, games, of_run=1) for _ in range(2)], (1, -1))
    assert st.equivalence(near, 0.1) < 0.01 < 0.3 < st.equivalence(wide, 0.1)


def test_one_more_run_is_less_certain_than_the_mean() -> None:
    rng = np.random.default_rng(7)
    hits = []
    for _ in range(1000):
        *seen, new = rng.normal(size=6)
        low, high = st.next_run(np.array(seen))
        hits.append(low <= new <= high)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)


def test_difference_without_variance_takes_the_permutation_p() -> None:
    same = pd.DataFrame(np.ones((8, 5)))
    change = st.contrast([same], [1.0])
    assert (change.value, change.low, change.high) == (1.0, 1.0, 1.0) and change.p == pytest.approx(2 / 2**8)
    assert st.contrast([same - same], [1.0]).p == 1.0
    assert st.contrast([same], [1.0], over=st.GAMES).p == pytest.approx(2 / 2**5)


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3])
def test_difference_of_rounding_errors_has_no_p_of_zero(value: float) -> None:
    got = st.contrast([pd.DataFrame(np.full((3, 10), value))], (1,))
    assert got.p == 2 / 2**10 and got.note == "all runs and games are equal"
    apart = st.contrast([pd.DataFrame(np.full((4, 7), 0.1 + 0.2)), pd.DataFrame(np.full((4, 7), 0.3))], (1, -1))
    assert (apart.value, apart.low, apart.high, apart.p) == (0.0, 0.0, 0.0, 1.0)
