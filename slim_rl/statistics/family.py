"""p values of several tests at once."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from statsmodels.stats.multitest import multipletests

from slim_rl.statistics.estimate import Floats


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
