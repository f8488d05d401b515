"""Significance tests: permutation, equivalence, and Holm's correction for several tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from slim_rl.statistics.estimate import Estimate, Floats

RESAMPLES = 20_000  # all C(16, 8) = 12,870 relabellings of two arms of eight runs


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


def permute(arms: Sequence[Floats], weights: Sequence[float], resamples: int = RESAMPLES, seed: int = 0) -> Permutation:
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
        n_resamples=resamples,
        batch=max(1, 2_000_000 // sum(sizes)),
        rng=np.random.default_rng(seed),
    )
    return Permutation(float(test.pvalue), least_p(sizes, resamples), _ways(sizes) <= resamples)


def least_p(sizes: Sequence[int], resamples: int = RESAMPLES) -> float:
    """Returns the smallest p of `permute` for arms of these sizes; NaN if one has fewer than two runs."""
    return 2 / min(_ways(sizes), resamples + 1) if min(sizes) > 1 else np.nan


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
