"""Statistics against known answers: by hand, by scipy and statsmodels where they overlap, by simulated coverage."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as draw
from numpy.typing import ArrayLike
from scipy import stats

from slim_rl import statistics as st


def clustered_data(seed: int, games: int = 40, repeats: int = 6, slope: float = 0.0) -> pd.DataFrame:
    """y = slope·step/100 + game effect + noise; each game is played `repeats` times, at one step."""
    rng = np.random.default_rng(seed)
    step = np.repeat(rng.permutation(np.linspace(0, 200, games)), repeats)
    effect = np.repeat(rng.normal(0, 1, games), repeats)
    y = slope * step / 100 + effect + rng.normal(0, 0.5, games * repeats)
    return pd.DataFrame(
        {"arm": "shy", "run": "a", "step": step, "cluster": np.repeat(np.arange(games), repeats), "y": y}
    )


# -- means


def test_one_value_a_game_gives_the_usual_t_interval() -> None:
    y = np.array([1.0, 2.0, 4.0, 9.0])
    got = st.clustered_mean(y, np.arange(4))
    want = stats.ttest_1samp(y, 0).confidence_interval(0.95)
    assert got.value == 4.0
    assert (got.low, got.high) == pytest.approx((want.low, want.high))
    assert (got.n, got.clusters) == (4, 4)


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


def test_intervals_widen_when_dialogues_share_a_game() -> None:
    data = clustered_data(2)
    together = st.clustered_mean(data.y, data.cluster)
    apart = st.clustered_mean(data.y, np.arange(len(data)))
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


@pytest.mark.parametrize("y", [[], [1.0], [1.0, np.nan]])
def test_fewer_than_two_games_give_no_interval_and_say_so(y: list[float]) -> None:
    got = st.clustered_mean(np.array(y), np.arange(len(y)))
    assert np.isnan(got.low) and np.isnan(got.high)
    assert got.note
    assert got.n == np.isfinite(y).sum()


def test_missing_values_are_left_out() -> None:
    got = st.clustered_mean([1.0, np.nan, 3.0], [0, 1, 2])
    assert (got.value, got.n, got.clusters) == (2.0, 2, 2)


def test_mean_over_runs_is_the_t_interval() -> None:
    got = st.mean_over_runs([1.0, 2.0, 4.0])
    want = stats.ttest_1samp([1.0, 2.0, 4.0], 0)
    assert got.p == pytest.approx(want.pvalue)
    assert (got.low, got.high) == pytest.approx(tuple(want.confidence_interval(0.95)))
    assert np.isnan(st.mean_over_runs([1.0]).low)
    assert np.isnan(st.mean_over_runs([]).value)


def test_the_clustered_interval_covers_the_truth() -> None:
    hits = 0
    for seed in range(300):
        data = clustered_data(seed, games=30)
        got = st.clustered_mean(data.y, data.cluster)
        hits += got.low <= 0 <= got.high
    assert 0.92 <= hits / 300 <= 0.98


# -- the bootstrap


def test_weights_draw_whole_games_with_replacement() -> None:
    weights = np.concatenate(list(st.game_weights(7, 500, seed=1, chunk=100)))
    assert weights.shape == (500, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert weights.mean() == 1.0
    assert weights.var() == pytest.approx(6 / 7, rel=0.1)


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (np.concatenate(list(st.game_weights(5, 50, seed=s))) for s in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


# -- trends


def trend(step: ArrayLike, y: ArrayLike, cluster: ArrayLike, **options: int) -> st.Estimate:
    """The slope of one run."""
    frame = pd.DataFrame({"arm": "shy", "run": "a", "step": step, "cluster": cluster, "y": y})
    return st.Slopes.fit(frame, ["y"], **options).arm("shy", "y")


def test_the_slope_is_that_of_scipy_per_100_steps() -> None:
    data = clustered_data(4, slope=0.7)
    got = trend(data.step, data.y, data.cluster)
    assert got.value == pytest.approx(100 * stats.linregress(data.step, data.y).slope)
    assert got.low < got.value < got.high


def test_a_straight_line_is_found_exactly() -> None:
    step = np.array([0.0, 50, 100, 150])
    got = trend(step, 2 + 0.03 * step, np.arange(4))
    assert (got.value, got.low, got.high) == pytest.approx((3.0, 3.0, 3.0))
    assert got.p < 0.05


def test_the_trend_interval_covers_a_known_slope_and_p_keeps_its_level() -> None:
    covered = rejected = 0
    for seed in range(200):
        data = clustered_data(seed, games=60, slope=0.5)
        got = trend(data.step, data.y, data.cluster, draws=300, seed=seed)
        covered += got.low <= 0.5 <= got.high
        null = clustered_data(1000 + seed, games=60)
        rejected += trend(null.step, null.y, null.cluster, draws=300, seed=seed).p < 0.05
    assert 0.90 <= covered / 200 <= 0.98
    assert rejected / 200 <= 0.10


def test_what_never_changes_has_a_slope_of_exactly_zero() -> None:
    got = trend(np.arange(50.0), np.full(50, 0.1), np.arange(50))
    assert (got.value, got.low, got.high, got.p) == (0, 0, 0, 1)


def test_a_trend_needs_two_steps_and_two_games() -> None:
    assert np.isnan(trend([5, 5, 5], [1, 2, 3], [0, 1, 2]).value)
    one_game = trend([0, 1, 2], [1, 2, 3], [7, 7, 7])
    assert one_game.value == pytest.approx(100) and np.isnan(one_game.low)
    assert one_game.note


def runs_with_slopes(slopes: dict[str, list[float]], shared: float = 1.0) -> pd.DataFrame:
    """Runs that all play the same games at the same steps, so that a game's own effect is shared."""
    frames = []
    for arm, values in slopes.items():
        for k, slope in enumerate(values):
            base = clustered_data(0, games=50)
            noise = np.random.default_rng(len(frames)).normal(0, 0.1, len(base))
            y = slope * base.step / 100 + shared * base.y + noise
            frames.append(base.assign(arm=arm, run=f"{arm}{k}", y=y))
    return pd.concat(frames, ignore_index=True)


def test_several_measures_and_runs_fit_as_each_alone() -> None:
    data = runs_with_slopes({"shy": [1.0, 1.2], "mute": [0.0]})
    data["z"] = data.y**2
    data.loc[data.index[::7], "z"] = np.nan
    fit = st.Slopes.fit(data, ["y", "z"], draws=50)
    assert fit.runs == [("mute", "mute0"), ("shy", "shy0"), ("shy", "shy1")]
    for i, (_, run) in enumerate(fit.runs):
        for m, name in enumerate(fit.measures):
            part = data[(data.run == run) & data[name].notna()]
            assert fit.value[i, m] == pytest.approx(100 * stats.linregress(part.step, part[name]).slope)
            assert fit.n[i, m] == len(part)
    assert fit.arm("shy", "y").value == pytest.approx(fit.value[1:, 0].mean())
    assert fit.arm("shy", "y").clusters == 50


def test_a_run_of_one_step_is_left_out_of_its_arm() -> None:
    data = runs_with_slopes({"shy": [1.0, 1.2], "mute": [0.0]})
    stopped = data[data.run == "shy0"].assign(run="stopped", step=0.0)
    fit = st.Slopes.fit(pd.concat([data, stopped]), ["y"], draws=50)
    assert len(fit.of_arm("shy")) == 3
    alone = st.Slopes.fit(data, ["y"], draws=50)
    assert fit.arm("shy", "y") == alone.arm("shy", "y")
    assert fit.over_runs("shy", "y") == alone.over_runs("shy", "y")
    assert fit.difference("shy", "mute", "y")[0].value == alone.difference("shy", "mute", "y")[0].value
    nothing = st.Slopes.fit(stopped, ["y"], draws=50)
    assert np.isnan(nothing.arm("shy", "y").value) and nothing.arm("shy", "y").note


def test_shared_games_cancel_in_a_difference_between_arms() -> None:
    fit = st.Slopes.fit(runs_with_slopes({"shy": [1.0, 1.1, 0.9], "mute": [0.0, 0.1, -0.1]}), ["y"])
    alone = fit.arm("shy", "y")
    games, runs, permuted = fit.difference("shy", "mute", "y")
    assert games.value == pytest.approx(1.0, abs=0.1)
    assert games.high - games.low < 0.3 * (alone.high - alone.low)
    assert permuted.p == permuted.least == pytest.approx(2 / 20)  # the least that 3 + 3 runs allow
    first, second = fit.value[fit.of_arm("shy"), 0], fit.value[fit.of_arm("mute"), 0]
    assert runs.p == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)


def test_one_run_an_arm_has_no_interval_over_runs() -> None:
    fit = st.Slopes.fit(runs_with_slopes({"shy": [1.0], "mute": [0.0]}), ["y"])
    games, runs, permuted = fit.difference("shy", "mute", "y")
    assert np.isfinite(games.low)
    assert np.isnan(runs.low) and "fewer than two runs" in runs.note
    assert np.isnan(permuted.p)


# -- association


@pytest.fixture
def talk() -> pd.DataFrame:
    """Questions and reward that only hang together through the amount of talk."""
    rng = np.random.default_rng(5)
    words = rng.normal(0, 1, 3000)
    return pd.DataFrame(
        {
            "words": words,
            "questions": words + rng.normal(0, 1, 3000),
            "reward": words + rng.normal(0, 1, 3000),
            "game": np.repeat(np.arange(500), 6),
        }
    )


def test_correlation_without_covariates_is_that_of_scipy(talk: pd.DataFrame) -> None:
    got = st.partial_correlation(talk.questions, talk.reward, talk.index)
    want = stats.pearsonr(talk.questions, talk.reward)
    interval = want.confidence_interval(0.95)
    assert got.value == pytest.approx(want.statistic)
    assert (got.low, got.high) == pytest.approx((interval.low, interval.high), abs=0.01)  # one dialogue a game
    ranked = st.partial_correlation(talk.questions, talk.reward, talk.index, method="spearman")
    assert ranked.value == pytest.approx(stats.spearmanr(talk.questions, talk.reward).statistic)


def test_partial_correlation_is_that_of_the_residuals(talk: pd.DataFrame) -> None:
    other = np.random.default_rng(6).normal(size=len(talk)) + talk.reward
    design = sm.add_constant(np.column_stack([talk.words, other]))
    residuals = [sm.OLS(v, design).fit().resid for v in (talk.questions, talk.reward)]
    got = st.partial_correlation(talk.questions, talk.reward, talk.game, given=[talk.words, other])
    assert got.value == pytest.approx(stats.pearsonr(*residuals).statistic)


def test_talk_explains_the_correlation_away(talk: pd.DataFrame) -> None:
    raw = st.partial_correlation(talk.questions, talk.reward, talk.game)
    partial = st.partial_correlation(talk.questions, talk.reward, talk.game, given=[talk.words])
    assert raw.low > 0.4
    assert partial.low < 0 < partial.high
    assert partial.clusters == 500
    plain = st.partial_correlation(talk.questions, talk.reward, talk.index, given=[talk.words])
    assert partial.high - partial.low == pytest.approx(plain.high - plain.low, rel=0.15)


def test_within_a_game_only_differences_inside_it_count() -> None:
    rng = np.random.default_rng(7)
    game = np.repeat(np.arange(200), 8)
    ease = np.repeat(rng.normal(0, 3, 200), 8)  # easy games: fewer questions, more reward
    questions = rng.normal(0, 1, 1600) - ease
    reward = 0.8 * (questions + ease) + rng.normal(0, 1, 1600) + ease
    assert st.partial_correlation(questions, reward, game).value < -0.3
    within = st.partial_correlation(questions, reward, game, within=game)
    assert within.low > 0.4
    centred = [v - pd.Series(v).groupby(game).transform("mean") for v in (questions, reward)]
    assert within.value == pytest.approx(stats.pearsonr(*centred).statistic)


def test_what_does_not_vary_has_no_correlation() -> None:
    got = st.partial_correlation(np.ones(20), np.arange(20), np.arange(20))
    assert np.isnan(got.value) and "vary" in got.note
    assert st.partial_correlation([1, 2], [3, 4], [0, 1]).note == "too few dialogues"
    alone = st.partial_correlation(np.arange(20.0), np.arange(20.0) ** 2, np.arange(20), within=np.arange(20))
    assert np.isnan(alone.value)


# -- two checkpoints


def test_paired_comparison_by_hand() -> None:
    before = pd.Series([0.5, 0.6, 0.7, 0.9], index=["a", "b", "c", "only before"])
    after = pd.Series([0.7, 0.7, 1.0, 0.1], index=["a", "b", "c", "only after"])
    got = st.paired_comparison(before, after)
    d = np.array([0.2, 0.1, 0.3])
    assert (got.before, got.after) == pytest.approx((0.6, 0.8))
    assert got.difference.value == pytest.approx(0.2)
    assert got.effect == pytest.approx(0.2 / 0.1)
    assert got.difference.p == pytest.approx(2 / 8)  # all differences agree: 2 of the 2³ sign patterns are as extreme
    interval = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert (got.difference.low, got.difference.high) == pytest.approx((interval.low, interval.high))


def test_repeats_of_a_game_are_averaged_before_pairing() -> None:
    before = pd.Series([0.0, 1.0, 0.2, 0.4], index=["a", "a", "b", "b"])
    after = pd.Series([0.6, 0.5], index=["a", "b"])
    got = st.paired_comparison(before, after)
    assert got.difference.clusters == 2
    assert got.difference.value == pytest.approx((0.1 + 0.2) / 2)


def test_paired_permutation_agrees_with_the_t_test_on_many_games() -> None:
    rng = np.random.default_rng(8)
    before = pd.Series(rng.normal(0, 1, 150))
    after = before + rng.normal(0.05, 0.3, 150)
    got = st.paired_comparison(before, after)
    assert got.difference.p == pytest.approx(stats.ttest_rel(after, before).pvalue, abs=0.02)


def test_paired_comparison_of_equal_or_too_few_games() -> None:
    same = pd.Series([0.5, 0.6], index=["a", "b"])
    assert st.paired_comparison(same, same).difference.p == 1.0
    lonely = st.paired_comparison(same, pd.Series([0.9], index=["a"]))
    assert np.isnan(lonely.difference.low) and lonely.difference.note
    assert np.isnan(st.paired_comparison(same, pd.Series([0.9], index=["z"])).before)


# -- corrections


def test_corrections_by_hand() -> None:
    p = [0.01, np.nan, 0.04, 0.03]
    assert st.adjust(p, "holm") == pytest.approx([0.03, np.nan, 0.06, 0.06], nan_ok=True)
    assert st.adjust(p, "fdr_bh") == pytest.approx([0.03, np.nan, 0.04, 0.04], nan_ok=True)
    assert np.isnan(st.adjust([np.nan])).all()


# -- intervals that stay in range


def test_wilson_by_hand_with_one_value_a_game() -> None:
    y = np.array([1.0] * 9 + [0.0])
    got = st.clustered_mean(y, np.arange(10), bounded=True)
    n, t = 0.9 * 0.1 / (0.9 * 0.1 / 9), stats.t.ppf(0.975, 9)  # se² = p q / (n - 1)
    centre, half = (0.9 + t**2 / (2 * n)) / (1 + t**2 / n), t * np.sqrt(0.09 / n + (t / (2 * n)) ** 2) / (1 + t**2 / n)
    assert (got.value, got.low, got.high) == pytest.approx((0.9, centre - half, centre + half))


@given(draw.lists(draw.floats(0, 1), min_size=2, max_size=30), draw.integers(1, 6))
def test_intervals_of_shares_stay_in_range(values: list[float], size: int) -> None:
    got = st.clustered_mean(values, np.arange(len(values)) // size, bounded=True)
    if got.clusters > 1:
        assert -1e-9 <= got.low <= got.value + 1e-9 and got.value - 1e-9 <= got.high <= 1 + 1e-9


def test_all_or_none_is_not_certain() -> None:
    every = st.clustered_mean(np.ones(20), np.arange(20), bounded=True)
    none = st.clustered_mean(np.zeros(20), np.arange(20), bounded=True)
    assert 0.8 < every.low < 0.9 and every.high == pytest.approx(1.0)
    assert (none.low, none.high) == pytest.approx((1 - every.high, 1 - every.low))


def test_values_outside_keep_their_t_interval() -> None:
    y = np.array([0.5, 1.5, 0.9, 1.2])
    assert st.clustered_mean(y, np.arange(4), bounded=True) == st.clustered_mean(y, np.arange(4))


def test_the_interval_of_a_count_ends_at_zero() -> None:
    seldom, games = np.array([0.0] * 19 + [1.0]), np.arange(20)
    count, number = st.clustered_mean(seldom, games, signed=False), st.clustered_mean(seldom, games)
    assert number.low < 0 == count.low and count.high == number.high
    negative = -seldom
    assert st.clustered_mean(negative, games, signed=False) == st.clustered_mean(negative, games)


def test_a_difference_of_shares_stays_in_range() -> None:
    before, after = pd.Series([0.0, 0.0, 1.0], index=list("abc")), pd.Series([1.0, 1.0, 1.0], index=list("abc"))
    assert st.paired_comparison(before, after, bounded=True).difference.high == 1.0
    assert st.paired_comparison(before, after).difference.high > 1.0
