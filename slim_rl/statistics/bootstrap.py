"""The bootstrap over games: whole games are drawn, with all that was played of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slim_rl.statistics.estimate import FEW, LEVEL, Estimate, Floats


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
