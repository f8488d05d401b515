"""Two checkpoints on the same games, one run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from slim_rl.statistics.estimate import FEW, LEVEL, Estimate, Floats


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


def _mean_difference(x: Floats, y: Floats, axis: int = -1) -> Floats:
    return np.asarray(np.mean(x, axis=axis) - np.mean(y, axis=axis))
