"""Slopes over training steps, of runs and arms, and their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from slim_rl.statistics.bootstrap import game_weights, percentile_interval
from slim_rl.statistics.estimate import DRAWS, LEVEL, Estimate, Floats
from slim_rl.statistics.means import mean_over_runs
from slim_rl.statistics.permutation import Permutation, permute_runs


@dataclass(frozen=True, slots=True)
class Slopes:
    """The slopes of several measures in several runs, and their bootstrap draws.

    One draw takes the same games in every run, because seeds and arms play the same games: so the draws of a difference
    between runs are the differences of the draws.

    Attributes:
        runs: (arm, run) of each row.
        measures: the name of each column.
        value: (runs, measures) slopes of the data, each the change over as many steps as `fit` was given.
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
    def fit(
        cls, frame: pd.DataFrame, measures: Sequence[str], draws: int = DRAWS, seed: int = 0, per: float = 100
    ) -> Slopes:
        """From a frame with the columns run, arm, step, cluster and `measures`; one row a dialogue. A slope is the change over
        `per` steps.

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
        value = np.stack([per * _slope(part.sum(axis=0).reshape(shape))[0] for part in parts])
        samples = np.concatenate(
            [
                np.stack(
                    [per * _slope((w[:, own] @ part).reshape(shape)) for own, part in zip(members, parts, strict=True)],
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

    def difference(self, arm: str, other: str, measure: str) -> tuple[Estimate, Estimate, Permutation]:
        """How much steeper `arm` is than `other`.

        Returns:
            Over games, given these runs (paired: one draw takes the same games in both arms); over runs, Welch's t; and the
            permutation test of the run labels. The last two are NaN with fewer than two runs in either arm.
        """
        m, a, b = self.measures.index(measure), self._known(arm, measure), self._known(other, measure)
        first, second = self.value[a, m], self.value[b, m]
        permuted = permute_runs([first, second], [1.0, -1.0])
        if not a or not b:
            nothing = Estimate(np.nan, np.nan, np.nan, 0, 0, note="no run of an arm has two steps")
            return nothing, nothing, permuted
        n, games = int(self.n[a + b, m].sum()), int(min(self.pooled[arm][m], self.pooled[other][m]))
        value = float(first.mean() - second.mean())
        samples = self.samples[:, a, m].mean(axis=1) - self.samples[:, b, m].mean(axis=1)
        return percentile_interval(value, samples, n, games), _welch(first, second), permuted


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
    """Slope per step from (..., 5) sums n, Σx, Σx², Σy, Σxy."""
    n, x, xx, y, xy = np.moveaxis(sums, -1, 0)
    spread = n * xx - x**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 1e-9 * np.maximum(n * xx, 1e-300), (n * xy - x * y) / spread, np.nan)


def _welch(a: Floats, b: Floats) -> Estimate:
    k, value = len(a) + len(b), float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(value, np.nan, np.nan, k, k, note="fewer than two runs in an arm")
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return Estimate(value, value, value, k, k, note="the runs of each arm are equal")
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(LEVEL)
    return Estimate(value, float(interval.low), float(interval.high), k, k, float(test.pvalue))
