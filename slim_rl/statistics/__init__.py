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
    [8] Cameron, Gelbach & Miller, Robust inference with multiway clustering, J. Business & Economic Statistics 2011; MacKinnon,
        Nielsen & Webb, Wild bootstrap and asymptotic inference with multiway clustering, JBES 2021 (never less than either
        way alone); Satterthwaite 1946 and Welch 1947 (degrees of freedom). The same question as that of several readers and
        cases in radiology: Obuchowski & Rockette 1995; Hillis 2007.
    [9] Schuirmann 1987 (two one-sided tests of equivalence).
"""

from slim_rl.statistics.association import partial_correlation
from slim_rl.statistics.bootstrap import game_weights
from slim_rl.statistics.crossed import contrast, equivalence, mean_interval, next_run
from slim_rl.statistics.estimate import DRAWS, Estimate
from slim_rl.statistics.family import adjust
from slim_rl.statistics.means import clustered_mean, clustered_means, mean_over_runs
from slim_rl.statistics.paired import paired_comparison
from slim_rl.statistics.permutation import Permutation, permute_runs
from slim_rl.statistics.slopes import Slopes

__all__ = [
    "DRAWS",
    "Estimate",
    "Permutation",
    "Slopes",
    "adjust",
    "clustered_mean",
    "clustered_means",
    "contrast",
    "equivalence",
    "game_weights",
    "mean_interval",
    "mean_over_runs",
    "next_run",
    "paired_comparison",
    "partial_correlation",
    "permute_runs",
]
