"""Contrasts over seeds and games at once: what another seed, on other games, would be expected to show.

Every run (seed) plays the same held-out games, so a number may differ from what is true for two reasons: these seeds and these
games. With y[run, game], runs r of arms a, and the contrast C = Σ_a w_a · mean_r(mean_g y[r, g]):

    variance   V = V_runs + V_games - V_both, at least the larger of the first two [8]
    V_runs     Σ_a w_a² s_a² / k_a, with s_a² the variance of the arm's k_a run means (Welch's, for two arms)
    V_games    G/(G-1) · Σ_games (the game's share of C)², in which arms that play the same games are paired
    V_both     what both of these count: the residual of run by game
    interval   C ± t(ν) · √V, with Satterthwaite's ν from the degrees of freedom of V_runs and V_games
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from slim_rl.statistics.estimate import LEVEL, Floats
from slim_rl.statistics.means import wilson


@dataclass(frozen=True, slots=True)
class Contrast:
    """A contrast of arms, its 95% interval over seeds and games, and the p value of "no difference".

    Attributes:
        se, df: standard error and degrees of freedom; NaN where an arm has fewer than two runs, and so are the interval and p.
        runs: one array an arm, the mean of each run.
        games: games that went in.
        note: why something is missing.
    """

    value: float
    low: float
    high: float
    p: float
    se: float
    df: float
    runs: list[Floats]
    games: int
    note: str = ""


def contrast(arms: Sequence[pd.DataFrame], weights: Sequence[float], limit: float = np.inf) -> Contrast:
    """Σ weight · mean of arm, over seeds and games.

    Args:
        arms: one frame an arm, a row a run and a column a game; NaN where a run has no value for a game.
        weights: one an arm: (1, -1) for a difference, (1,) for the mean of changes, centred doses for a slope.
        limit: no contrast can lie outside ±limit, nor does the interval.
    """
    tables = [arm.dropna(how="all") for arm in arms]
    means = [table.mean(axis=1).to_numpy(float) for table in tables]
    sizes = [len(mean) for mean in means]
    games = len(set().union(*(table.columns[table.notna().any()] for table in tables)))
    if 0 in sizes:
        return _unknown(np.nan, means, games, "no data in an arm")
    value = float(sum(w * mean.mean() for w, mean in zip(weights, means, strict=True)))
    if min(sizes) < 2:
        return _unknown(value, means, games, "one run in an arm: nothing is known about other seeds")
    of_runs = np.array([w**2 * m.var(ddof=1) / len(m) for w, m in zip(weights, means, strict=True)])
    of_games, both = _game_variances(tables, weights)
    variance = max(of_runs.sum() + of_games - both, of_runs.sum(), of_games)
    if variance <= 0:
        return Contrast(
            value, value, value, float(value == 0), 0.0, np.inf, means, games, "all runs and games are equal"
        )
    parts = [(v, len(m) - 1) for v, m in zip(of_runs, means, strict=True)] + [(of_games, max(games - 1, 1))]
    df = float(variance**2 / sum(part**2 / freedom for part, freedom in parts))
    se = float(np.sqrt(variance))
    half = float(stats.t.ppf(0.5 + LEVEL / 2, df)) * se
    p = float(2 * stats.t.sf(abs(value) / se, df))
    return Contrast(value, max(-limit, value - half), min(limit, value + half), p, se, df, means, games)


def _game_variances(tables: Sequence[pd.DataFrame], weights: Sequence[float]) -> tuple[float, float]:
    """V_games and V_both."""
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


def _unknown(value: float, means: list[Floats], games: int, note: str) -> Contrast:
    return Contrast(value, np.nan, np.nan, np.nan, np.nan, np.nan, means, games, note)


def mean_interval(found: Contrast, bounded: bool, positive: bool = False) -> tuple[float, float]:
    """The interval of one arm's mean, inside its range: Wilson's for shares (`bounded`) [7]; cut at zero for counts (`positive`)."""
    if not bounded or not np.isfinite(found.value) or np.isnan(found.df):
        return (float(np.maximum(0.0, found.low)) if positive else found.low), found.high
    t = stats.t.ppf(0.5 + LEVEL / 2, found.df)
    centre, half = wilson(*map(np.asarray, (found.value, found.se, t, found.games)))
    return float(centre - half), float(centre + half)


def equivalence(found: Contrast, margin: float) -> float:
    """p of "the difference is `margin` or more, either way": small where there is none that matters [9]."""
    sides = (found.value + margin) / found.se, (margin - found.value) / found.se
    return float(max(stats.t.sf(side, found.df) for side in sides))


def next_run(values: Floats) -> tuple[float, float]:
    """The 95% prediction interval of one more run's number: mean ± t(k-1) · s · √(1 + 1/k). NaN for fewer than two runs."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return np.nan, np.nan
    half = float(stats.t.ppf(0.5 + LEVEL / 2, len(x) - 1) * x.std(ddof=1) * np.sqrt(1 + 1 / len(x)))
    return float(x.mean()) - half, float(x.mean()) + half
