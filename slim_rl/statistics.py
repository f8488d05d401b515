"""Statistics of the project: functions from arrays and frames to numbers, without files and figures.

Invariants:
    The unit drawn independently is the game or the seed, never the dialogue: a game is played several times (a GRPO group,
    several seeds, several arms). Every interval is over games, over seeds (runs) or over both; `Estimate.over` names which.
    With fewer than two games (or runs) the interval is NaN, and `Estimate.note` gives the reason.
    Missing values (NaN) are left out and not counted in `n`.
    All randomness comes from a fixed seed: the same input gives the same output.
    Intervals are 95% everywhere.

Every run (seed) plays the same held-out games, so a mean has two sources of error: the sample of seeds and the sample of
games. With y[run, game], runs r of arms a, and the contrast C = Σ_a w_a · mean_r(mean_g y[r, g]):

    V_runs     Σ_a w_a² s_a² / k_a, with s_a² the variance of the arm's k_a run means (Welch's, for two arms)
    V_games    G/(G-1) · Σ_games (the game's share of C)², with arms paired on the games that both play
    V_both     variance counted by both: the run-by-game residual
    over seeds and games    V = V_runs + V_games - V_both, at least the larger of the first two [5]
    over games              V = V_games
    interval   C ± t(ν) · √V, with Satterthwaite's ν from the degrees of freedom of V's parts

Sources:
    [1] Liang & Zeger, Longitudinal data analysis using generalized linear models, Biometrika 1986; Cameron & Miller, A
        practitioner's guide to cluster-robust inference, J. Human Resources 2015 (clustered standard errors, CR1).
    [2] Phipson & Smyth, Permutation p-values should never be zero, 2010 (the +1 in a resampled p value).
    [3] Holm 1979 (family-wise error).
    [4] Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927; Brown, Cai & DasGupta,
        Interval estimation for a binomial proportion, Statistical Science 2001.
    [5] Cameron, Gelbach & Miller, Robust inference with multiway clustering, J. Business & Economic Statistics 2011; MacKinnon,
        Nielsen & Webb, Wild bootstrap and asymptotic inference with multiway clustering, JBES 2021 (never less than either
        way alone); Satterthwaite 1946 and Welch 1947 (degrees of freedom). Radiology has the same design, with readers and
        cases: Obuchowski & Rockette 1995; Hillis 2007.
    [6] Schuirmann 1987 (two one-sided tests of equivalence).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

LEVEL = 0.95
FEW = "fewer than two games"
_ROUNDING = 1e-12  # relative to the largest number: smaller differences are rounding errors of equal sums
RESAMPLES = 20_000  # all C(16, 8) = 12,870 relabellings of two arms of eight runs

Floats = NDArray[np.float64]
Over = Literal["games", "seeds", "seeds and games"]
GAMES: Over = "games"  # given these runs
SEEDS: Over = "seeds"
BOTH: Over = "seeds and games"  # as if another seed played other games
Range = tuple[float, float]  # of values
SHARE: Range = (0.0, 1.0)
ANY: Range = (-np.inf, np.inf)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty.

    Attributes:
        value: point estimate; NaN without data.
        low, high: ends of the 95% interval; NaN if it cannot be estimated.
        n: number of dialogues, or of (run, game) means.
        clusters: number of games they belong to.
        p: two-sided p value of "value = 0" (of "no difference" for a comparison); NaN if no test was made.
        note: reason for a missing interval; "" if nothing is missing.
        over: unit that the interval and p treat as drawn at random.
        se, df: standard error and its degrees of freedom.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int
    p: float = float("nan")
    note: str = ""
    over: Over = GAMES
    se: float = float("nan")
    df: float = float("nan")


# -- runs by games -----------------------------------------------------------------------------------------------------


def contrast(
    arms: Sequence[pd.DataFrame], weights: Sequence[float], limit: float = np.inf, over: Over = BOTH
) -> Estimate:
    """Returns Σ weight · mean of arm, with its interval.

    Args:
        arms: one frame per arm, runs × games; NaN where a run has no value for a game.
        weights: one weight per arm: (1, -1) for a difference, (1,) for a mean of changes, centred doses for a slope.
        limit: bound of |contrast|; the interval is cut there.
        over: "games", given these runs, or "seeds and games"; the latter becomes "seeds" if a run has one number.
    """
    tables = list(map(played, arms))
    means = run_means(tables)
    known = [~np.isnan(table.to_numpy(float)) for table in tables]
    games = len(reduce(pd.Index.union, (t.columns[each.any(axis=0)] for t, each in zip(tables, known, strict=True))))
    n = sum(int(each.sum()) for each in known)
    over = SEEDS if over == BOTH and games < 2 else over
    sizes = [len(mean) for mean in means]
    if 0 in sizes:
        return _unknown(np.nan, n, games, "no data in an arm", over)
    value = float(sum(w * mean.mean() for w, mean in zip(weights, means, strict=True)))
    if over != GAMES and min(sizes) < 2:
        return _unknown(value, n, games, "one run in an arm: nothing is known about other seeds", over)
    if over == GAMES and games < 2:
        return _unknown(value, n, games, FEW, over)
    of_games, both = _game_variances(tables, weights, games)
    parts = [(of_games, max(games - 1, 1))]
    variance = of_games
    if over != GAMES:
        of_runs = np.array([w**2 * m.var(ddof=1) / len(m) for w, m in zip(weights, means, strict=True)])
        parts = [*((v, len(m) - 1) for v, m in zip(of_runs, means, strict=True)), *parts]
        variance = max(of_runs.sum() + of_games - both, of_runs.sum(), of_games)
    most = max(abs(w) * float(np.nanmax(abs(t.to_numpy(float)))) for w, t in zip(weights, tables, strict=True))
    exact, limit = _ROUNDING * most, max(limit, most)  # a game's own rewards may be larger
    if variance <= exact * exact:  # a square by ** may raise
        note = "all runs and games are equal"
        df = games - 1 if over == GAMES else np.inf
        value = value if abs(value) > exact else 0.0
        relabelled = np.nan if over == GAMES else permute(means, weights).p
        p = float(np.fmin(least_p([games]), relabelled)) if value else 1.0  # as the interval, it excludes zero
        return Estimate(value, value, value, n, games, p, note, over, 0.0, df)
    df = float(variance**2 / sum(part**2 / freedom for part, freedom in parts))
    se = float(np.sqrt(variance))
    half = float(_t(df)) * se
    p = float(2 * special.stdtr(df, -abs(value) / se))
    return Estimate(value, max(-limit, value - half), min(limit, value + half), n, games, p, "", over, se, df)


def run_means(arms: Sequence[pd.DataFrame]) -> list[Floats]:
    """Returns one array per arm: the mean of each run that has a value."""
    return [np.nanmean(played(arm).to_numpy(float), axis=1) for arm in arms]


def played(arm: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs of an arm (runs × games) that have a value."""
    known = (~np.isnan(arm.to_numpy(float))).any(axis=1)
    return arm if known.all() else arm[known]


def _game_variances(tables: Sequence[pd.DataFrame], weights: Sequence[float], games: int) -> tuple[float, float]:
    """Returns V_games and V_both. `games`: number of games with a value."""
    both, shares = 0.0, []
    for table, weight in zip(tables, weights, strict=True):
        y = table.to_numpy(float)
        known = np.isfinite(y)
        share = weight * (y - np.nanmean(y, axis=1, keepdims=True)) / (known.sum(axis=1, keepdims=True) * len(y))
        share = np.where(known, share, 0.0)
        shares.append(pd.Series(share.sum(axis=0), table.columns))
        count = known.sum(axis=0)
        spread = (share**2).sum(axis=0) - share.sum(axis=0) ** 2 / np.maximum(count, 1)
        both += float((spread * count / np.maximum(count - 1, 1))[count > 1].sum())
    total = reduce(partial(pd.Series.add, fill_value=0.0), shares).to_numpy()
    return float((total**2).sum()) * games / max(games - 1, 1), both


def _unknown(value: float, n: int, games: int, note: str, over: Over) -> Estimate:
    return Estimate(value, np.nan, np.nan, n, games, note=note, over=over)


def arm_mean(arm: pd.DataFrame, within: Range = ANY) -> Estimate:
    """Returns the mean of an arm (runs × games), over seeds and games, or over games for one run.

    `within` as for `clustered_means`.
    """
    arm = played(arm)
    one = len(arm) < 2
    estimate = contrast([arm.dropna(axis=1) if one else arm], [1.0], over=GAMES if one else BOTH)
    if np.isnan(estimate.df):
        return estimate
    mean, se, n = (np.asarray(number) for number in (estimate.value, estimate.se, estimate.n))
    low, high = _in_range(mean, se, _t(estimate.df), n, within, arm.to_numpy(float))
    return replace(estimate, low=float(low), high=float(high))


def next_run(values: Floats) -> tuple[float, float]:
    """Returns the 95% prediction interval of one more run: mean ± t(k-1) · s · √(1 + 1/k).

    NaN for fewer than two runs.
    """
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return np.nan, np.nan
    half = float(_t(len(x) - 1) * x.std(ddof=1) * np.sqrt(1 + 1 / len(x)))
    return float(x.mean()) - half, float(x.mean()) + half


# -- dialogues, clustered by game --------------------------------------------------------------------------------------


def clustered_mean(y: ArrayLike, cluster: ArrayLike, within: Range = ANY) -> Estimate:
    """Returns the mean of `y`, with an interval from standard errors clustered by game.

    With residuals e = y - mean, n values and G games: se² = G/(G-1) · Σ_games (Σ_i∈game e_i)² / n²; the interval is
    mean ± t(G-1) · se. This is the intercept of an OLS fit with CR1 errors [1]. With one value per game it is the usual t
    interval. `within` as for `clustered_means`.
    """
    found, _ = _clustered(y, cluster, np.zeros(len(np.asarray(y)), dtype=int), within)
    if not len(found["n"]):
        return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no data")
    mean, low, high, n, clusters = (column[0].item() for column in found.values())
    return Estimate(mean, low, high, n, clusters, note=FEW if clusters < 2 else "")


def mean_of_games(rewards: ArrayLike) -> Estimate:
    """Returns the mean of one reward per game, with its t interval, within [0, 1] if the rewards are."""
    values = np.asarray(rewards, dtype=float)
    mean = clustered_mean(values, np.arange(len(values)))
    if np.nanmin(values, initial=0.0) < 0 or np.nanmax(values, initial=1.0) > 1:
        return mean
    low, high = np.clip([mean.low, mean.high], 0.0, 1.0).tolist()
    return replace(mean, low=low, high=high)


def clustered_means(y: ArrayLike, cluster: ArrayLike, group: ArrayLike, within: Range = ANY) -> pd.DataFrame:
    """Returns `clustered_mean` per group, as a frame indexed by group: mean, low, high, n, clusters.

    Args:
        within: range of the values; an interval is cut at an end that no value exceeds. Of a `SHARE` it is Wilson's [4], with the
            number of independent draws that has the clustered error, mean · (1 - mean) / se²; if all values are 0, or all are 1,
            with n draws (the limit of one value that differs).
    """
    columns, groups = _clustered(y, cluster, group, within)
    return pd.DataFrame(columns, index=pd.Index(groups))


def _clustered(y: ArrayLike, cluster: ArrayLike, group: ArrayLike, within: Range) -> tuple[dict[str, Any], Any]:
    """Returns the columns of `clustered_means`, and the groups."""
    values = np.asarray(y, dtype=float)
    ok = np.isfinite(values)
    values = values[ok]
    codes, groups = pd.factorize(np.asarray(group)[ok], sort=True)
    games, names = pd.factorize(np.asarray(cluster)[ok])
    cells, keys = pd.factorize(codes * len(names) + games)  # a cell is one game in one group
    owner = keys // max(1, len(names))
    n, clusters = np.bincount(codes, minlength=len(groups)), np.bincount(owner, minlength=len(groups))
    mean = np.bincount(codes, values, len(groups)) / n
    residuals = np.bincount(cells, values, len(keys)) - np.bincount(cells, minlength=len(keys)) * mean[owner]
    count = np.where(clusters > 1, clusters, np.nan)
    se = np.sqrt(count / (count - 1) * np.bincount(owner, residuals**2, len(groups))) / n
    low, high = _in_range(mean, se, _t(count - 1), n, within, values)
    return {"mean": mean, "low": low, "high": high, "n": n, "clusters": clusters}, groups


def within_correlation(x: ArrayLike, y: ArrayLike, group: ArrayLike, cluster: ArrayLike) -> Estimate:
    """Returns the within-group correlation of `x` and `y`, with a jackknife interval over clusters.

    Args:
        group: group of each value, such as its GRPO group; a group of one value adds nothing.
        cluster: game of each value; a group lies within one game.
    """
    data = pd.DataFrame({"x": x, "y": y, "group": group, "cluster": cluster}).dropna()
    centred = data[["x", "y"]] - data.groupby("group")[["x", "y"]].transform("mean")
    products = pd.DataFrame({"xy": centred.x * centred.y, "xx": centred.x**2, "yy": centred.y**2})
    sums = products.groupby(data["cluster"]).sum()
    sums = sums[(sums["xx"] > 0) | (sums["yy"] > 0)]
    total, games = sums.sum(), len(sums)
    if games < 2 or min(total["xx"], total["yy"]) <= _ROUNDING:
        return _unknown(np.nan, len(data), games, "too few games in which both differ", GAMES)
    value = float(total["xy"] / np.sqrt(total["xx"] * total["yy"]))
    left = total - sums
    with np.errstate(divide="ignore", invalid="ignore"):
        without = (left["xy"] / np.sqrt(left["xx"] * left["yy"])).to_numpy(float)
    without = without[np.isfinite(without)]
    se = float(np.sqrt((games - 1) / games * ((without - without.mean()) ** 2).sum()))
    half = float(_t(games - 1)) * se
    return Estimate(value, max(-1.0, value - half), min(1.0, value + half), len(data), games, se=se, df=games - 1)


def _t(df: ArrayLike) -> Floats:
    """Returns Student's quantile: the half-width of an interval in standard errors.

    `scipy.stats` has it too, but takes half a second to import, at every command.
    """
    return np.asarray(special.stdtrit(df, 0.5 + LEVEL / 2))


def _in_range(
    mean: Floats, se: Floats, t: Floats, n: NDArray[np.int64], within: Range, values: Floats
) -> tuple[Floats, Floats]:
    """Returns mean ± t · se, or Wilson's interval [4] of a share, within the range of the values."""
    least = within[0] if np.nanmin(values, initial=np.inf) >= within[0] - _ROUNDING else -np.inf
    most = within[1] if np.nanmax(values, initial=-np.inf) <= within[1] + _ROUNDING else np.inf
    if (least, most) != SHARE:
        return np.maximum(least, mean - se * t), np.minimum(mean + se * t, most)
    mean = np.clip(mean, 0.0, 1.0)
    variance = mean * (1 - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = np.where(variance > _ROUNDING, variance / se**2, n)
    shrunk = 1 + t**2 / draws
    half = t * np.sqrt(variance / draws + (t / (2 * draws)) ** 2) / shrunk
    centre = (mean + t**2 / (2 * draws)) / shrunk
    return np.clip(centre - half, 0.0, mean), np.clip(centre + half, mean, 1.0)


# -- significance ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permutation:
    """Result of a permutation test.

    Attributes:
        p: two-sided p value.
        least: smallest p value possible with this number of values.
        exact: whether every relabelling was tried; else they were sampled.
    """

    p: float
    least: float
    exact: bool


def permute(arms: Sequence[Floats], weights: Sequence[float]) -> Permutation:
    """Tests whether Σ weight · (mean of the arm) is zero, from one number per run or game.

    Several arms: labels are permuted over runs; the null is that the arms do not differ. One arm: signs are flipped; the null
    is symmetry about zero. A sampled p is never zero [2]. NaN if an arm has fewer than two numbers.
    """
    known = [arm[np.isfinite(arm)] for arm in arms]
    if min(map(len, known)) < 2:
        return Permutation(np.nan, np.nan, True)
    sizes = list(map(len, known))

    def statistic(*samples: Floats, axis: int = -1) -> Floats:
        return np.asarray(sum(w * np.mean(x, axis=axis) for w, x in zip(weights, samples, strict=True)))

    from scipy.stats import permutation_test  # takes half a second to import; many commands test nothing

    test = permutation_test(
        known,
        statistic,
        permutation_type="samples" if len(sizes) == 1 else "independent",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, 2_000_000 // sum(sizes)),
        rng=np.random.default_rng(0),
    )
    return Permutation(float(test.pvalue), least_p(sizes), _ways(sizes) <= RESAMPLES)


def least_p(sizes: Sequence[int]) -> float:
    """Returns the smallest p of `permute` for arms of these sizes; NaN if one has fewer than two runs."""
    return 2 / min(_ways(sizes), RESAMPLES + 1) if min(sizes) > 1 else np.nan


def _ways(sizes: Sequence[int]) -> int:
    if len(sizes) == 1:
        return int(2 ** sizes[0])
    return math.factorial(sum(sizes)) // math.prod(map(math.factorial, sizes))


def equivalence(difference: Estimate, margin: float) -> float:
    """Returns p of the null "the difference is at least `margin`, in either direction" [6]."""
    sides = (difference.value + margin) / difference.se, (margin - difference.value) / difference.se
    return float(max(special.stdtr(difference.df, -side) for side in sides))


def holm(p: ArrayLike) -> Floats:
    """Returns p values with Holm's correction for the family-wise error [3]. NaN stays NaN and is not counted."""
    from statsmodels.stats.multitest import multipletests  # which imports scipy.stats

    values = np.asarray(p, dtype=float)
    out = np.full(values.shape, np.nan)
    known = np.isfinite(values)
    if known.any():
        out[known] = multipletests(values[known], method="holm")[1]
    return out
