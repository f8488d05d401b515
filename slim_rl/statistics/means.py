"""Means and their intervals, clustered by game, or over runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from slim_rl.statistics.estimate import FEW, LEVEL, Estimate, Floats


def clustered_mean(y: ArrayLike, cluster: ArrayLike, bounded: bool = False, signed: bool = True) -> Estimate:
    """The mean of `y` and its interval with errors clustered by game.

    With residuals e = y - mean, n values and G games: se² = G/(G-1) · Σ_games (Σ_i∈game e_i)² / n²; the interval is
    mean ± t(G-1) · se. This is the intercept of an OLS fit with CR1 errors [1]. With one value a game it is the usual t
    interval. `bounded`, `signed`: see `clustered_means`.
    """
    table = clustered_means(y, cluster, np.zeros(len(np.asarray(y)), dtype=int), bounded, signed)
    if table.empty:
        return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no data")
    row = table.iloc[0]
    note = FEW if row.clusters < 2 else ""
    return Estimate(row["mean"], row.low, row.high, int(row.n), int(row.clusters), note=note)


def clustered_means(
    y: ArrayLike, cluster: ArrayLike, group: ArrayLike, bounded: bool = False, signed: bool = True
) -> pd.DataFrame:
    """`clustered_mean` of every group at once. Returns a frame indexed by group: mean, low, high, n, clusters.

    Args:
        bounded: all values lie in [0, 1], and so do the intervals: Wilson's [7], with as many independent draws as would
            have the clustered error, mean · (1 - mean) / se²; where all values are 0 or all are 1, as many as there are games.
            Ignored where a value lies outside.
        signed: values may be negative; where they may not, and none is, intervals are cut at zero.
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
    t = stats.t.ppf(0.5 + LEVEL / 2, count - 1)
    if bounded and len(values) and values.min() >= 0 and values.max() <= 1:
        centre, half = wilson(mean, se, t, clusters)
    else:
        centre, half = mean, se * t
    cut = not signed and len(values) and values.min() >= 0
    low = np.maximum(0.0, centre - half) if cut else centre - half
    columns = {"mean": mean, "low": low, "high": centre + half, "n": n, "clusters": clusters}
    return pd.DataFrame(columns, index=pd.Index(groups))


def wilson(mean: Floats, se: Floats, t: Floats, clusters: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Centre and half width of Wilson's interval [7] for means in [0, 1] with these errors and quantiles of t."""
    variance = np.clip(mean * (1 - mean), 0.0, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = np.where(variance > 0, variance / se**2, clusters)
    shrunk = 1 + t**2 / draws
    half = t * np.sqrt(variance / draws + (t / (2 * draws)) ** 2) / shrunk
    return (mean + t**2 / (2 * draws)) / shrunk, half


def mean_over_runs(values: ArrayLike) -> Estimate:
    """The mean of one number a run, its t interval over runs (k - 1 degrees of freedom), and p of the t test."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) == 0:
        return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no data")
    if len(x) < 2:
        return Estimate(float(x[0]), np.nan, np.nan, 1, 1, note="one run: nothing is known about other seeds")
    if np.ptp(x) == 0:
        return Estimate(float(x[0]), float(x[0]), float(x[0]), len(x), len(x), note="all runs are equal")
    test = stats.ttest_1samp(x, 0.0)
    interval = test.confidence_interval(LEVEL)
    return Estimate(float(x.mean()), float(interval.low), float(interval.high), len(x), len(x), float(test.pvalue))
