"""Correlations of two measures, given others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from slim_rl.statistics.bootstrap import game_weights, percentile_interval
from slim_rl.statistics.estimate import DRAWS, Estimate, Floats


def partial_correlation(
    x: ArrayLike,
    y: ArrayLike,
    cluster: ArrayLike,
    *,
    given: Sequence[ArrayLike] = (),
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

    The interval is a percentile bootstrap over games (`cluster`). NaN if a variable is constant.
    """
    columns = [np.asarray(v, dtype=float) for v in (x, y, *given)]
    complete = np.all(np.isfinite(columns), axis=0)
    raw = np.stack([v[complete] for v in columns], axis=1)
    n, k = raw.shape
    codes, uniques = pd.factorize(np.asarray(cluster)[complete])
    games = len(uniques)
    if n < k + 2:
        return Estimate(np.nan, np.nan, np.nan, n, games, note="too few dialogues")
    z = np.asarray(stats.rankdata(raw, axis=0), dtype=float) if method == "spearman" else raw
    if within is not None:
        z = z - pd.DataFrame(z).groupby(pd.factorize(np.asarray(within)[complete])[0]).transform("mean").to_numpy()
    z = z - z.mean(axis=0)
    spread = z.std(axis=0)
    if (spread < 1e-12 * np.maximum(1.0, np.abs(raw).max(axis=0))).any():
        return Estimate(np.nan, np.nan, np.nan, n, games, note="a variable does not vary")
    z = z / spread
    terms = [np.ones(n), *z.T, *(z[:, i] * z[:, j] for i in range(k) for j in range(k))]
    moments = np.stack([np.bincount(codes, term, games) for term in terms], axis=1)
    value = float(_partial(moments.sum(axis=0)[None], k)[0])
    samples = np.concatenate([_partial(w @ moments, k) for w in game_weights(games, draws, seed)])
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
