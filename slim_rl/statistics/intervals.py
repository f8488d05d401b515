"""Confidence intervals over games, over seeds, or over both at once.

Every run (seed) plays the same held-out games, so a mean has two sources of error: the sample of seeds and the sample of
games. With y[run, game], runs r of arms a, and the contrast C = Σ_a w_a · mean_r(mean_g y[r, g]):

    V_runs     Σ_a w_a² s_a² / k_a, with s_a² the variance of the arm's k_a run means (Welch's, for two arms)
    V_games    G/(G-1) · Σ_games (the game's share of C)², with arms paired on the games that both play
    V_both     variance counted by both: the run-by-game residual
    over seeds and games    V = V_runs + V_games - V_both, at least the larger of the first two [5]
    over games              V = V_games
    interval   C ± t(ν) · √V, with Satterthwaite's ν from the degrees of freedom of V's parts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from slim_rl.statistics.estimate import BOTH, FEW, GAMES, LEVEL, SEEDS, Estimate, Floats, Over
from slim_rl.statistics.significance import least_p, permute

_ROUNDING = 1e-12  # relative to the largest number: smaller differences are rounding errors of equal sums

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
    tables = [arm.dropna(how="all") for arm in arms]
    means = run_means(tables)
    games = len(set().union(*(table.columns[table.notna().any()] for table in tables)))
    n = sum(int(table.notna().to_numpy().sum()) for table in tables)
    over = SEEDS if over == BOTH and games < 2 else over
    sizes = [len(mean) for mean in means]
    if 0 in sizes:
        return _unknown(np.nan, n, games, "no data in an arm", over)
    value = float(sum(w * mean.mean() for w, mean in zip(weights, means, strict=True)))
    if over != GAMES and min(sizes) < 2:
        return _unknown(value, n, games, "one run in an arm: nothing is known about other seeds", over)
    if over == GAMES and games < 2:
        return _unknown(value, n, games, FEW, over)
    of_games, both = _game_variances(tables, weights)
    parts = [(of_games, max(games - 1, 1))]
    variance = of_games
    if over != GAMES:
        of_runs = np.array([w**2 * m.var(ddof=1) / len(m) for w, m in zip(weights, means, strict=True)])
        parts = [*((v, len(m) - 1) for v, m in zip(of_runs, means, strict=True)), *parts]
        variance = max(of_runs.sum() + of_games - both, of_runs.sum(), of_games)
    exact = _ROUNDING * max(
        abs(w) * float(np.nanmax(abs(t.to_numpy(float)))) for w, t in zip(weights, tables, strict=True)
    )
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
    return [arm.dropna(how="all").mean(axis=1).to_numpy(float) for arm in arms]


def _game_variances(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> tuple[float, float]:
    """Returns V_games and V_both."""
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
    total = pd.concat(shares, axis=1).fillna(0.0).sum(axis=1).to_numpy()
    games = len(total)
    return (float((total**2).sum()) * games / (games - 1) if games > 1 else 0.0), both


def _unknown(value: float, n: int, games: int, note: str, over: Over) -> Estimate:
    return Estimate(value, np.nan, np.nan, n, games, note=note, over=over)


def arm_mean(arm: pd.DataFrame, bounded: bool = False, signed: bool = True, ceiling: float = np.inf) -> Estimate:
    """Returns the mean of an arm (runs × games), over seeds and games, or over games for one run.

    Args:
        bounded, signed, ceiling: as for `clustered_means`.
    """
    arm = arm.dropna(how="all")
    one = len(arm) < 2
    estimate = contrast([arm.dropna(axis=1) if one else arm], [1.0], over=GAMES if one else BOTH)
    if np.isnan(estimate.df):
        return estimate
    mean, se, n = (np.asarray(number) for number in (estimate.value, estimate.se, estimate.n))
    smallest, largest = np.nanmin(arm.to_numpy(float)), np.nanmax(arm.to_numpy(float))
    share = bounded and smallest >= -_ROUNDING and largest <= 1 + _ROUNDING
    low, high = _in_range(mean, se, _t(estimate.df), n, share, smallest >= 0 and not signed)
    return replace(estimate, low=float(low), high=min(float(high), ceiling) if largest <= ceiling else float(high))


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


# -- two policies, paired by game --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Means before and after, and their difference, on the games both sides played."""

    before: float
    after: float
    difference: Estimate


def paired_comparison(before: pd.Series, after: pd.Series, bounded: bool = False) -> PairedComparison:
    """Returns how two checkpoints, or two policies, differ on the games both played.

    Args:
        before, after: one value per dialogue, indexed by game. A game's dialogues are averaged first; games that only one
            side played are left out.
        bounded: whether all values lie in [0, 1]; the interval is then cut at -1 and 1.

    Interval and p of the mean difference are Student's over games. With fewer than two common games they are NaN.
    """
    a, b = (s.dropna().groupby(level=0).mean() for s in (before, after))
    both = pd.concat([a, b], axis=1, join="inner").to_numpy(float)
    estimate = contrast([pd.DataFrame([both[:, 1] - both[:, 0]])], [1.0], 1.0 if bounded else np.inf, GAMES)
    estimate = replace(estimate, n=int(before.notna().sum() + after.notna().sum()))
    first, last = both.mean(axis=0) if len(both) else (np.nan, np.nan)
    return PairedComparison(float(first), float(last), estimate)


# -- dialogues, clustered by game --------------------------------------------------------------------------------------


def clustered_mean(
    y: ArrayLike, cluster: ArrayLike, bounded: bool = False, signed: bool = True, ceiling: float = np.inf
) -> Estimate:
    """Returns the mean of `y`, with an interval from standard errors clustered by game.

    With residuals e = y - mean, n values and G games: se² = G/(G-1) · Σ_games (Σ_i∈game e_i)² / n²; the interval is
    mean ± t(G-1) · se. This is the intercept of an OLS fit with CR1 errors [1]. With one value per game it is the usual t
    interval. `bounded`, `signed`, `ceiling`: see `clustered_means`.
    """
    table = clustered_means(y, cluster, np.zeros(len(np.asarray(y)), dtype=int), bounded, signed, ceiling)
    if table.empty:
        return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no data")
    row = table.iloc[0]
    note = FEW if row.clusters < 2 else ""
    return Estimate(row["mean"], row.low, row.high, int(row.n), int(row.clusters), note=note)


def clustered_means(
    y: ArrayLike,
    cluster: ArrayLike,
    group: ArrayLike,
    bounded: bool = False,
    signed: bool = True,
    ceiling: float = np.inf,
) -> pd.DataFrame:
    """Returns `clustered_mean` per group, as a frame indexed by group: mean, low, high, n, clusters.

    Args:
        bounded: whether values are shares in [0, 1]. Intervals are then Wilson's [4], with the number of independent draws
            that has the clustered error, mean · (1 - mean) / se²; if all values are 0, or all are 1, with n draws (the limit
            of one value that differs). Ignored if a value lies outside [0, 1].
        signed: whether values may be negative; if not, and none is, intervals are cut at zero.
        ceiling: upper bound of the values; if none exceeds it, intervals are cut there.
    """
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
    smallest, largest = (values.min(), values.max()) if len(values) else (np.nan, np.nan)
    share = bounded and bool(smallest >= -_ROUNDING and largest <= 1 + _ROUNDING)
    low, high = _in_range(mean, se, _t(count - 1), n, share, bool(smallest >= 0) and not signed)
    high = np.minimum(high, ceiling) if largest <= ceiling else high
    columns = {"mean": mean, "low": low, "high": high, "n": n, "clusters": clusters}
    return pd.DataFrame(columns, index=pd.Index(groups))


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
    mean: Floats, se: Floats, t: Floats, n: NDArray[np.int64], share: bool, positive: bool
) -> tuple[Floats, Floats]:
    """Returns mean ± t · se, Wilson's interval [4] for a share, cut at zero for `positive` values."""
    centre, half = mean, se * t
    if share:
        mean = np.clip(mean, 0.0, 1.0)
        variance = mean * (1 - mean)
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = np.where(variance > _ROUNDING, variance / se**2, n)
        shrunk = 1 + t**2 / draws
        half = t * np.sqrt(variance / draws + (t / (2 * draws)) ** 2) / shrunk
        centre = (mean + t**2 / (2 * draws)) / shrunk
        return np.clip(centre - half, 0.0, mean), np.clip(centre + half, mean, 1.0)
    return np.maximum(0.0, centre - half) if positive else centre - half, centre + half
