"""Statistics of the project: functions from arrays and frames to numbers, without files and figures.

Invariants:
    The unit drawn independently is the game or the seed, never the dialogue: a game is played several times (a GRPO group,
    several seeds, several arms). Every interval is over games, over seeds (runs) or over both; `Estimate.over` names which.
    With fewer than two games (or runs) the interval is NaN, and `Estimate.note` gives the reason.
    Missing values (NaN) are left out and not counted in `n`.
    All randomness comes from a `seed`; the same input gives the same output.
    Intervals are 95% everywhere.

Sources:
    [1] Liang & Zeger, Longitudinal data analysis using generalized linear models, Biometrika 1986; Cameron & Miller, A
        practitioner's guide to cluster-robust inference, J. Human Resources 2015 (clustered standard errors, CR1).
    [2] Phipson & Smyth, Permutation p-values should never be zero, 2010 (the +1 in a resampled p value).
    [3] Holm 1979 (family-wise error).
    [4] Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927; Brown, Cai & DasGupta,
        Interval estimation for a binomial proportion, Statistical Science 2001.
    [5] Cameron, Gelbach & Miller, Robust inference with multiway clustering, J. Business & Economic Statistics 2011; MacKinnon,
        Nielsen & Webb, Wild bootstrap and asymptotic inference with multiway clustering, JBES 2021 (never less than either
        way alone); Satterthwaite 1946 and Welch 1947 (degrees of freedom). Radiology has the same design, with readers and
        cases: Obuchowski & Rockette 1995; Hillis 2007.
    [6] Schuirmann 1987 (two one-sided tests of equivalence).
"""

from slim_rl.statistics.estimate import BOTH, GAMES, SEEDS, Estimate, Over
from slim_rl.statistics.intervals import (
    arm_mean,
    clustered_mean,
    clustered_means,
    contrast,
    next_run,
    paired_comparison,
    run_means,
    within_correlation,
)
from slim_rl.statistics.significance import Permutation, equivalence, holm, least_p, permute

__all__ = [
    "BOTH",
    "GAMES",
    "SEEDS",
    "Estimate",
    "Over",
    "Permutation",
    "arm_mean",
    "clustered_mean",
    "clustered_means",
    "contrast",
    "equivalence",
    "holm",
    "least_p",
    "next_run",
    "paired_comparison",
    "permute",
    "run_means",
    "within_correlation",
]
