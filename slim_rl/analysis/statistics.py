"""Every statistic the report prints, and nothing else: arrays and frames in, numbers out, no file and no figure.

The invariant: the unit that is drawn independently is the game, not the dialogue. A game is played several times (a
GRPO group, several seeds, several arms), so every interval here is over games (clusters) or over runs (seeds), never
over dialogues.

What the data cannot tell is not reported: with fewer than two games (or runs) the interval is NaN and `note` gives the reason.
Missing values (NaN) are left out and never counted in `n`. All randomness comes from a `seed`; the same input gives the same
output.

Intervals are 95% everywhere.

Sources:
    [1] Liang & Zeger, Longitudinal data analysis using generalized linear models, Biometrika 1986; Cameron & Miller, A
        practitioner's guide to cluster-robust inference, J. Human Resources 2015 (clustered standard errors, CR1).
    [2] Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13 (percentile interval); Field & Welsh,
        Bootstrapping clustered data, JRSS B 2007 (whole clusters are drawn).
    [3] Phipson & Smyth, Permutation p-values should never be zero, 2010 (the +1 in a resampled p value).
    [4] Fisher, The distribution of the partial correlation coefficient, Metron 1924.
    [5] Cohen, Statistical Power Analysis, 1988 (d_z); Lakens, Frontiers in Psychology 2013.
    [6] Holm 1979 (family-wise error); Benjamini & Hochberg 1995 (false discovery rate).
    [7] Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927; Brown, Cai & DasGupta,
        Interval estimation for a binomial proportion, Statistical Science 2001.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.95
DRAWS = 2000  # bootstrap draws: the Monte Carlo error of a 95% bound is about 0.4 points of coverage
PER_STEPS = 100  # slopes are given per so many training steps
FEW = "fewer than two games"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how well it is known.

    Attributes:
        value: the point estimate; NaN if there is no data.
        low, high: the 95% interval; NaN where there is none.
        n: dialogues that went in.
        clusters: games (or runs, where the interval is over runs) they belong to.
        p: two-sided p value of the null "value = 0" (of "no difference" for a comparison); NaN where none is made.
        note: why something is missing, or what the interval does not cover; empty if there is nothing to add.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int
    p: float = float("nan")
    note: str = ""


# -- means -----------------------------------------------------------------------------------------------------------


def clustered_mean(y: ArrayLike, cluster: ArrayLike, bounded: bool = False) -> Estimate:
    """The mean of `y` and its interval with errors clustered by game.

    With residuals e = y - mean, n values and G games: se² = G/(G-1) · Σ_games (Σ_i∈game e_i)² / n²; the interval is
    mean ± t(G-1) · se. This is the intercept of an OLS fit with CR1 errors [1]. With one value a game it is the usual t
    interval. `bounded`: see `clustered_means`.
    """
    table = clustered_means(y, cluster, np.zeros(len(np.asarray(y)), dtype=int), bounded)
    if table.empty:
        return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no data")
    row = table.iloc[0]
    note = FEW if row.clusters < 2 else ""
    return Estimate(row["mean"], row.low, row.high, int(row.n), int(row.clusters), note=note)


def clustered_means(y: ArrayLike, cluster: ArrayLike, group: ArrayLike, bounded: bool = False) -> pd.DataFrame:
    """`clustered_mean` of every group at once. Returns a frame indexed by group: mean, low, high, n, clusters.

    Args:
        bounded: all values lie in [0, 1], and so do the intervals: Wilson's [7], with as many independent draws as would
            have the clustered error, mean · (1 - mean) / se²; where all values are 0 or all are 1, as many as there are games.
            Ignored where a value lies outside.
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
        centre, half = _wilson(mean, se, t, clusters)
    else:
        centre, half = mean, se * t
    columns = {"mean": mean, "low": centre - half, "high": centre + half, "n": n, "clusters": clusters}
    return pd.DataFrame(columns, index=pd.Index(groups))


def _wilson(mean: Floats, se: Floats, t: Floats, clusters: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Centre and half width of Wilson's interval for means in [0, 1] with these errors."""
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


# -- the bootstrap over games ----------------------------------------------------------------------------------------


def game_weights(games: int, draws: int, seed: int, chunk: int = 1_000_000) -> Iterator[Floats]:
    """Bootstrap draws of whole games [2], as counts: yields (part of the draws, games) arrays, rows summing to `games`.

    Every statistic of a draw is a weighted sum over games, so a draw costs one row of a matrix product. Parts hold
    about `chunk` counts, which bounds memory; the draws do not depend on what is done with them, so that runs and arms
    that share games can share draws.
    """
    rng = np.random.default_rng(seed)
    rows = max(1, min(draws, chunk // max(1, games)))
    for start in range(0, draws, rows):
        part = min(rows, draws - start)
        picks = rng.integers(0, games, size=(part, games)) + np.arange(part)[:, None] * games
        yield np.bincount(picks.ravel(), minlength=part * games).reshape(part, games).astype(float)


def percentile_interval(value: float, samples: Floats, n: int, clusters: int) -> Estimate:
    """The percentile interval of bootstrap samples [2], and p = 2 · (1 + #beyond zero) / (1 + draws), at most 1 [3]."""
    samples = samples[np.isfinite(samples)]
    if clusters < 2:
        return Estimate(value, np.nan, np.nan, n, clusters, note=FEW)
    if len(samples) < 2:
        return Estimate(value, np.nan, np.nan, n, clusters, note="not defined in any bootstrap draw")
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    beyond = min(int((samples <= 0).sum()), int((samples >= 0).sum()))
    return Estimate(value, float(low), float(high), n, clusters, min(1.0, 2 * (1 + beyond) / (1 + len(samples))))


# -- trends over training --------------------------------------------------------------------------------------------


def trend(step: ArrayLike, y: ArrayLike, cluster: ArrayLike, draws: int = DRAWS, seed: int = 0) -> Estimate:
    """The least-squares slope of `y` on the training step, per 100 steps, with a percentile interval over games."""
    frame = pd.DataFrame({"run": "", "arm": "", "step": step, "cluster": cluster, "y": y})
    return Slopes.fit(frame, ["y"], draws, seed).arm("", "y")


@dataclass(frozen=True, slots=True)
class Slopes:
    """The slope per 100 steps of several measures in several runs, and their bootstrap draws.

    One draw takes the same games in every run, because seeds and arms play the same games: so the draws of a difference
    between runs are the differences of the draws.

    Attributes:
        runs: (arm, run) of each row.
        measures: the name of each column.
        value: (runs, measures) slopes of the data.
        samples: (draws, runs, measures) slopes of the draws.
        n, games: (runs, measures) dialogues and games behind each slope.
        pooled: arm -> (measures,) games of the arm's runs together.
    """

    runs: list[tuple[str, str]]
    measures: list[str]
    value: Floats
    samples: Floats
    n: NDArray[np.int64]
    games: NDArray[np.int64]
    pooled: dict[str, NDArray[np.int64]]

    @classmethod
    def fit(cls, frame: pd.DataFrame, measures: Sequence[str], draws: int = DRAWS, seed: int = 0) -> Slopes:
        """From a frame with the columns run, arm, step, cluster and `measures`; one row a dialogue.

        slope = (N·Σxy - Σx·Σy) / (N·Σx² - Σx²), where each sum is over games of (times drawn) × (the game's own sum).
        NaN where all of a run's dialogues are of one step.
        """
        codes, uniques = pd.factorize(frame["cluster"])
        games = len(uniques)
        arms = frame["arm"].to_numpy()
        runs = sorted({(str(a), str(r)) for a, r in frame[["arm", "run"]].drop_duplicates().itertuples(index=False)})
        parts, members, counts = [], [], []
        pooled = {arm: np.zeros((games, len(measures)), dtype=bool) for arm, _ in runs}
        for arm, run in runs:
            rows = (arms == arm) & (frame["run"].to_numpy() == run)
            moments, own = _moments(
                codes[rows], frame.loc[rows, "step"].to_numpy(float), frame.loc[rows, list(measures)]
            )
            parts.append(moments.reshape(len(own), -1))
            members.append(own)
            counts.append(moments[:, :, 0])
            pooled[arm][own] |= moments[:, :, 0] > 0
        shape = (-1, len(measures), 5)
        value = np.stack([_slope(part.sum(axis=0).reshape(shape))[0] for part in parts])
        samples = np.concatenate(
            [
                np.stack(
                    [_slope((w[:, own] @ part).reshape(shape)) for own, part in zip(members, parts, strict=True)],
                    axis=1,
                )
                for w in game_weights(games, draws, seed)
            ]
        )
        n = np.stack([c.sum(axis=0) for c in counts]).astype(np.int64)
        seen = np.stack([(c > 0).sum(axis=0) for c in counts]).astype(np.int64)
        total = {arm: mask.sum(axis=0) for arm, mask in pooled.items()}
        return cls(runs, list(measures), value, samples, n, seen, total)

    def of_arm(self, arm: str) -> list[int]:
        return [i for i, (a, _) in enumerate(self.runs) if a == arm]

    def _known(self, arm: str, measure: str) -> list[int]:
        """The arm's runs that have a slope."""
        return [i for i in self.of_arm(arm) if np.isfinite(self.value[i, self.measures.index(measure)])]

    def arm(self, arm: str, measure: str) -> Estimate:
        """The mean slope of the arm's runs (each counts the same), with its interval over games, given these runs."""
        m, rows = self.measures.index(measure), self._known(arm, measure)
        if not rows:
            return Estimate(np.nan, np.nan, np.nan, 0, 0, note="no run of the arm has two steps")
        samples = self.samples[:, rows, m].mean(axis=1)
        n, games = int(self.n[rows, m].sum()), int(self.pooled[arm][m])
        return percentile_interval(float(self.value[rows, m].mean()), samples, n, games)

    def over_runs(self, arm: str, measure: str) -> Estimate:
        """The same mean slope with its t interval over runs: what to expect of another seed."""
        return mean_over_runs(self.value[self.of_arm(arm), self.measures.index(measure)])

    def difference(self, arm: str, other: str, measure: str) -> dict[str, Estimate]:
        """How much steeper `arm` is than `other`.

        Returns:
            games: interval and p over games, given these runs (paired: one draw takes the same games in both arms).
            runs: Welch's t interval and p over runs; NaN with fewer than two runs in either arm.
            permutation: p of the exact permutation test of the run labels. With few runs it cannot be small: its least
                value, 2 / C(a + b, a) for equally many runs, stands in the note.
        """
        m, a, b = self.measures.index(measure), self._known(arm, measure), self._known(other, measure)
        if not a or not b:
            nothing = Estimate(np.nan, np.nan, np.nan, 0, 0, note="no run of an arm has two steps")
            return {"games": nothing, "runs": nothing, "permutation": nothing}
        n, games = int(self.n[a + b, m].sum()), int(min(self.pooled[arm][m], self.pooled[other][m]))
        first, second = self.value[a, m], self.value[b, m]
        value = float(first.mean() - second.mean())
        samples = self.samples[:, a, m].mean(axis=1) - self.samples[:, b, m].mean(axis=1)
        return {
            "games": percentile_interval(value, samples, n, games),
            "runs": _welch(first, second),
            "permutation": _permute_runs(first, second),
        }


def _moments(codes: NDArray[np.intp], x: Floats, ys: pd.DataFrame) -> tuple[Floats, NDArray[np.int64]]:
    """Sums over the complete rows, (games, measures, 5): n, Σx, Σx², Σy, Σxy; and which games these are."""
    own, local = np.unique(codes, return_inverse=True)
    x = (x - np.nanmean(x)) if np.isfinite(x).any() else x  # centred, like y below, lest large sums cancel badly
    out = np.zeros((len(own), ys.shape[1], 5))
    for m, name in enumerate(ys.columns):
        y = ys[name].to_numpy(float)
        ok = np.isfinite(y) & np.isfinite(x)
        y = y[ok] - y[ok].mean() if ok.any() else y[ok]
        for k, term in enumerate((np.ones(len(y)), x[ok], x[ok] ** 2, y, x[ok] * y)):
            out[:, m, k] = np.bincount(local[ok], term, len(own))
    return out, own


def _slope(sums: Floats) -> Floats:
    """Slope per 100 steps from (..., 5) sums n, Σx, Σx², Σy, Σxy."""
    n, x, xx, y, xy = np.moveaxis(sums, -1, 0)
    spread = n * xx - x**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 1e-9 * np.maximum(n * xx, 1e-300), PER_STEPS * (n * xy - x * y) / spread, np.nan)


def _welch(a: Floats, b: Floats) -> Estimate:
    k, value = len(a) + len(b), float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(value, np.nan, np.nan, k, k, note="fewer than two runs in an arm")
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return Estimate(value, value, value, k, k, note="the runs of each arm are equal")
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(LEVEL)
    return Estimate(value, float(interval.low), float(interval.high), k, k, float(test.pvalue))


def _permute_runs(a: Floats, b: Floats) -> Estimate:
    k, value = len(a) + len(b), float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(value, np.nan, np.nan, k, k, note="fewer than two runs in an arm")
    test = stats.permutation_test(
        (a, b), _mean_difference, vectorized=True, n_resamples=20_000, rng=np.random.default_rng(0)
    )
    least = (2 if len(a) == len(b) else 1) / math.comb(k, len(a))
    return Estimate(value, np.nan, np.nan, k, k, float(test.pvalue), note=f"least possible p {least:.2g}")


def _mean_difference(x: Floats, y: Floats, axis: int = -1) -> Floats:
    return np.asarray(np.mean(x, axis=axis) - np.mean(y, axis=axis))


# -- association -----------------------------------------------------------------------------------------------------


def partial_correlation(
    x: ArrayLike,
    y: ArrayLike,
    given: Sequence[ArrayLike] = (),
    cluster: ArrayLike | None = None,
    *,
    within: ArrayLike | None = None,
    method: Literal["pearson", "spearman"] = "pearson",
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimate:
    """The correlation of x and y once the linear effect of `given` is taken out of both.

    With P the inverse of the covariance matrix of (x, y, given...): r = -P_xy / √(P_xx · P_yy), which equals the
    correlation of the residuals of x and y regressed on `given` [4]. "spearman" ranks every variable first (over all
    dialogues; ranks are not computed again in a bootstrap draw). `within` names a group: each variable is centred in its
    group first, so that only differences inside a group count (such as between dialogues on the same game at the same
    step, which is all that GRPO sees).

    The interval is over games if `cluster` is given (percentile bootstrap), else Fisher's: tanh(atanh r ± z / √(n - k -
    3)) with k variables given, and p by the same normal approximation. NaN if a variable is constant.
    """
    columns = [np.asarray(v, dtype=float) for v in (x, y, *given)]
    labels = np.arange(len(columns[0])) if cluster is None else np.asarray(cluster)
    if within is not None:
        keep = pd.Series(np.asarray(within)).notna().to_numpy()
        columns = [np.where(keep, v, np.nan) for v in columns]
    complete = np.all(np.isfinite(columns), axis=0)
    z = np.stack([v[complete] for v in columns], axis=1)
    n = len(z)
    codes, uniques = pd.factorize(labels[complete])
    if n < len(columns) + 2:
        return Estimate(np.nan, np.nan, np.nan, n, len(uniques), note="too few dialogues")
    if method == "spearman":
        z = np.asarray(stats.rankdata(z, axis=0), dtype=float)
    if within is not None:
        z = z - pd.DataFrame(z).groupby(pd.factorize(np.asarray(within)[complete])[0]).transform("mean").to_numpy()
    z = z - z.mean(axis=0)
    spread = z.std(axis=0)
    if (spread < 1e-12 * np.maximum(1.0, np.abs(np.stack([v[complete] for v in columns], axis=1)).max(axis=0))).any():
        return Estimate(np.nan, np.nan, np.nan, n, len(uniques), note="a variable does not vary")
    z = z / spread
    value = float(_partial(np.concatenate([[n], z.sum(axis=0), (z.T @ z).ravel()])[None], z.shape[1])[0])
    if cluster is None:
        return _fisher(value, n, len(given))
    games = len(uniques)
    terms = [np.ones(n), *z.T, *(z[:, i] * z[:, j] for i in range(z.shape[1]) for j in range(z.shape[1]))]
    moments = np.stack([np.bincount(codes, term, games) for term in terms], axis=1)
    samples = np.concatenate([_partial(w @ moments, z.shape[1]) for w in game_weights(games, draws, seed)])
    return percentile_interval(value, samples, n, games)


def _partial(sums: Floats, k: int) -> Floats:
    """Partial correlations of the first two of k variables from (draws, 1 + k + k²) sums n, Σz, Σzz'."""
    n = sums[:, 0]
    mean = sums[:, 1 : 1 + k] / n[:, None]
    covariance = sums[:, 1 + k :].reshape(-1, k, k) / n[:, None, None] - mean[:, :, None] * mean[:, None, :]
    out = np.full(len(sums), np.nan)
    ok = np.linalg.cond(covariance) < 1e12
    precision = np.linalg.inv(covariance[ok])
    out[ok] = -precision[:, 0, 1] / np.sqrt(precision[:, 0, 0] * precision[:, 1, 1])
    return out


def _fisher(r: float, n: int, given: int) -> Estimate:
    if not np.isfinite(r) or abs(r) >= 1 or n - given - 3 <= 0:
        return Estimate(r, np.nan, np.nan, n, n, note="too few dialogues or a perfect correlation")
    z, se = np.arctanh(r), 1 / np.sqrt(n - given - 3)
    half = stats.norm.ppf(0.5 + LEVEL / 2) * se
    return Estimate(r, float(np.tanh(z - half)), float(np.tanh(z + half)), n, n, float(2 * stats.norm.sf(abs(z) / se)))


# -- two checkpoints on the same games -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """`after` minus `before` on the games both played; `effect` is Cohen's d_z, the mean difference over its sd [5]."""

    before: float
    after: float
    difference: Estimate
    effect: float


def paired_comparison(
    before: pd.Series, after: pd.Series, seed: int = 0, resamples: int = 9999, bounded: bool = False
) -> PairedComparison:
    """Compares two checkpoints game by game.

    Args:
        before, after: one value a dialogue, indexed by game. A game's dialogues (several seeds or repeats) are averaged
            first; games that only one side played are left out.
        bounded: all values lie in [0, 1], so that the interval of a difference is cut at -1 and 1.

    The interval of the mean difference is Student's over games; p is that of the sign-flip permutation test, exact
    where 2^games is at most `resamples`, else drawn. With fewer than two common games all but the means is NaN.
    """
    a, b = (s.dropna().groupby(level=0).mean() for s in (before, after))
    both = pd.concat([a, b], axis=1, join="inner").to_numpy(float)
    both = both[np.lexsort(both.T)]  # so that what games are called does not change the flips that are drawn
    n = int(before.notna().sum() + after.notna().sum())
    d = both[:, 1] - both[:, 0]
    value = float(d.mean()) if len(d) else np.nan
    means = (float(both[:, 0].mean()), float(both[:, 1].mean())) if len(d) else (np.nan, np.nan)
    if len(d) < 2:
        return PairedComparison(*means, Estimate(value, np.nan, np.nan, n, len(d), note=FEW + " in common"), np.nan)
    sd = float(d.std(ddof=1))
    half = float(stats.t.ppf(0.5 + LEVEL / 2, len(d) - 1)) * sd / np.sqrt(len(d))
    test = stats.permutation_test(
        (both[:, 1], both[:, 0]),
        _mean_difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // len(d)),
        rng=np.random.default_rng(seed),
    )
    p = float(test.pvalue) if sd > 0 or value else 1.0
    limit = 1.0 if bounded else np.inf
    interval = max(-limit, value - half), min(limit, value + half)
    return PairedComparison(*means, Estimate(value, *interval, n, len(d), p), value / sd if sd else np.nan)


# -- several measures at once ----------------------------------------------------------------------------------------


def adjust(p: ArrayLike, method: Literal["holm", "fdr_bh"] = "holm") -> Floats:
    """p values corrected for their number [6]: "holm" keeps the family-wise error, "fdr_bh" the false discovery rate.

    NaN stays NaN and is not counted in the family.
    """
    values = np.asarray(p, dtype=float)
    out = np.full(values.shape, np.nan)
    known = np.isfinite(values)
    if known.any():
        out[known] = multipletests(values[known], method=method)[1]
    return out
