"""Permutation over runs: how often would shuffled labels do as well? Exact where the labels can be tried out, and it says how
small its p can get at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from slim_rl.statistics.estimate import Floats

RESAMPLES = 20_000  # all C(16, 8) = 12,870 relabellings of two arms of eight runs


@dataclass(frozen=True, slots=True)
class Permutation:
    """`p`: two-sided; `least`: the smallest that so many runs allow; `exact`: every relabelling was tried, else they were drawn."""

    p: float
    least: float
    exact: bool


def permute_runs(arms: Sequence[Floats], weights: Sequence[float]) -> Permutation:
    """Tests that Σ weight · (mean of the arm's runs) is zero, given one number a run.

    Several arms: which run has which label is permuted; the null is that the arms do not differ. One arm: the runs' signs are
    flipped; the null is that they are symmetric about zero. NaN where an arm has fewer than two runs.
    """
    known = [arm[np.isfinite(arm)] for arm in arms]
    if min(map(len, known)) < 2:
        return Permutation(np.nan, np.nan, True)
    sizes = list(map(len, known))
    ways = 2 ** sizes[0] if len(sizes) == 1 else math.factorial(sum(sizes)) // math.prod(map(math.factorial, sizes))

    def statistic(*samples: Floats, axis: int = -1) -> Floats:
        return np.asarray(sum(w * np.mean(x, axis=axis) for w, x in zip(weights, samples, strict=True)))

    test = stats.permutation_test(
        known,
        statistic,
        permutation_type="samples" if len(sizes) == 1 else "independent",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(0),
    )
    exact = ways <= RESAMPLES
    return Permutation(float(test.pvalue), 2 / ways if exact else 2 / (RESAMPLES + 1), exact)
