"""Statistics against known answers: by hand, by scipy and statsmodels where they overlap, by simulated coverage."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as draw
from scipy import stats

from slim_rl import statistics as st


def clustered_data(seed: int, games: int = 40, repeats: int = 6, slope: float = 0.0) -> pd.DataFrame:
    """y = slope·step/100 + game effect + noise; each game is played `repeats` times, at one step."""
    rng = np.random.default_rng(seed)
    step = np.repeat(rng.permutation(np.linspace(0, 200, games)), repeats)
    effect = np.repeat(rng.normal(0, 1, games), repeats)
    y = slope * step / 100 + effect + rng.normal(0, 0.5, games * repeats)
    cluster = np.repeat(np.arange(games), repeats)
    return pd.DataFrame({"arm": "shy", "run": "a", "step": step, "cluster": cluster, "y": y})


# -- means


def test_clustered_interval_is_that_of_statsmodels() -> None:
    data = clustered_data(0)
    fit = sm.OLS(data.y, np.ones(len(data))).fit(cov_type="cluster", cov_kwds={"groups": data.cluster}, use_t=True)
    got = st.clustered_mean(data.y, data.cluster)
    assert (got.low, got.high) == pytest.approx(tuple(fit.conf_int().iloc[0]))


def test_grouped_means_are_the_means_of_the_groups() -> None:
    data = clustered_data(1)
    group = np.where(data.step > 100, "late", "early")
    table = st.clustered_means(data.y, data.cluster, group)
    for name, row in table.iterrows():
        alone = st.clustered_mean(data.y[group == name], data.cluster[group == name])
        assert (row["mean"], row.low, row.high) == pytest.approx((alone.value, alone.low, alone.high))


@pytest.mark.parametrize("y", [[], [1.0], [1.0, np.nan]])
def test_fewer_than_two_games_give_no_interval_and_say_so(y: list[float]) -> None:
    got = st.clustered_mean(np.array(y), np.arange(len(y)))
    assert np.isnan(got.low) and np.isnan(got.high)
    assert got.note
    assert got.n == np.isfinite(y).sum()
    found = st.clustered_mean([1.0, np.nan, 3.0], [0, 1, 2])
    assert (found.value, found.n, found.clusters) == (2.0, 2, 2), "missing values are left out"


def test_corrections_by_hand() -> None:
    assert st.holm([0.01, np.nan, 0.04, 0.03]) == pytest.approx([0.03, np.nan, 0.06, 0.06], nan_ok=True)
    assert np.isnan(st.holm([np.nan])).all()


# -- intervals that stay in range


def test_wilson_by_hand_with_one_value_a_game() -> None:
    got = st.clustered_mean(np.array([1.0] * 9 + [0.0]), np.arange(10), within=st.SHARE)
    n, t = 0.9 * 0.1 / (0.9 * 0.1 / 9), stats.t.ppf(0.975, 9)  # se² = p q / (n - 1)
    centre, half = (0.9 + t**2 / (2 * n)) / (1 + t**2 / n), t * np.sqrt(0.09 / n + (t / (2 * n)) ** 2) / (1 + t**2 / n)
    assert (got.value, got.low, got.high) == pytest.approx((0.9, centre - half, centre + half))


@given(draw.lists(draw.floats(0, 1), min_size=2, max_size=30), draw.integers(1, 6))
def test_intervals_of_shares_stay_in_range(values: list[float], size: int) -> None:
    got = st.clustered_mean(values, np.arange(len(values)) // size, within=st.SHARE)
    if got.clusters > 1:
        assert -1e-9 <= got.low <= got.value + 1e-9 and got.value - 1e-9 <= got.high <= 1 + 1e-9


def test_all_or_none_is_not_certain() -> None:
    every = st.clustered_mean(np.ones(20), np.arange(20), within=st.SHARE)
    none = st.clustered_mean(np.zeros(20), np.arange(20), within=st.SHARE)
    assert 0.8 < every.low < 0.9 and every.high == pytest.approx(1.0)
    assert (none.low, none.high) == pytest.approx((1 - every.high, 1 - every.low))


@given(draw.integers(2, 30), draw.integers(1, 8), draw.data())
def test_intervals_shrink_with_certainty(games: int, size: int, data: draw.DataObject) -> None:
    """One more success never lowers an end, up to all of them; so too for failures."""
    values = np.ones(games * size)
    failures = data.draw(draw.lists(draw.integers(0, len(values) - 1), max_size=6, unique=True))
    ends = []
    for number in range(min(len(failures), 2) + 1):
        values[failures[:number]] = 0.0
        got = st.clustered_mean(values, np.arange(len(values)) // size, within=st.SHARE)
        runs = pd.DataFrame(values.reshape(size, games))
        ends.append((got.low, got.value, got.high, st.arm_mean(runs, within=st.SHARE).low))
    if len(ends) > 1:
        assert ends[0][0] >= ends[1][0] - 1e-9 and ends[0][2] == 1.0 and ends[0][3] >= ends[1][3] - 1e-9


def test_an_interval_ends_at_its_bound_if_all_values_are_within() -> None:
    games, at = np.arange(10), st.clustered_mean
    net = np.array([1.0] * 9 + [-0.5])
    got, free = (at(net, games, within=(-np.inf, end)) for end in (1.0, np.inf))
    assert got.high == 1.0 < free.high and got.low == free.low
    assert st.arm_mean(pd.DataFrame([net]), within=(-np.inf, 1.0)).high == 1.0
    seldom = np.array([0.0] * 9 + [1.0])
    count, number = at(seldom, games, within=(0.0, np.inf)), at(seldom, games)
    assert number.low < 0 == count.low and count.high == number.high
    for values, within in ((-seldom, (0.0, np.inf)), (net + 1, st.SHARE)):
        assert at(values, games, within=within) == at(values, games)


def test_a_change_of_larger_rewards_is_not_cut() -> None:
    change = st.contrast([pd.DataFrame([[20.0, 21.0, 19.0], [19.0, 22.0, 20.0]])], [1.0], limit=1.0)
    assert change.low < change.value < 21 < change.high


def test_correlation_within_games_by_hand() -> None:
    x, y = np.array([0.0, 2, 4, 5, 5, 8]), np.array([0.1, 0.3, 0.5, 0.9, 0.7, 1.0])
    game = np.repeat([0, 1, 2], 2)
    got = st.within_correlation(x, y, game, game)
    dx, dy = np.array([-1.0, 1, -0.5, 0.5, -1.5, 1.5]), np.array([-0.1, 0.1, -0.2, 0.2, -0.15, 0.15])
    assert got.value == pytest.approx((dx * dy).sum() / np.sqrt((dx**2).sum() * (dy**2).sum()))
    assert -1 <= got.low < got.value < got.high <= 1 and (got.n, got.clusters) == (6, 3)


def test_correlation_within_games_ignores_what_games_share() -> None:
    rng = np.random.default_rng(0)
    game = np.repeat(np.arange(200), 4)
    ease = np.repeat(rng.normal(0, 5, 200), 4)  # easy games: fewer questions and more reward
    x, y = -ease + rng.normal(size=800), ease + rng.normal(size=800)
    found = st.within_correlation(x, y, game, game)
    assert np.corrcoef(x, y)[0, 1] < -0.9 and found.low < 0 < found.high and found.high - found.low < 0.25
    assert np.isnan(st.within_correlation([1, 1], [0, 1], [0, 0], [0, 0]).value)
