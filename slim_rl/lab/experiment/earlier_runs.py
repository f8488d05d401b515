"""Runs without logs, whose values are taken from the tables of the experiment's earlier page.

Invariant: all values of a run come from one source, its logs or the tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from slim_rl import provenance
from slim_rl.analysis.plays import Plays


def with_earlier_runs(plays: Plays, earlier: Plays) -> Plays:
    """Returns the logs' values, with the tables' values for runs whose logs are missing or end earlier."""
    stay = (earlier.runs - plays.runs) | (earlier.ended - plays.ended)
    if not stay:
        return plays
    return replace(
        plays,
        held_out=_joined(plays.held_out, earlier.held_out, stay, ["condition", "arm"]),
        training=_joined(plays.training, earlier.training, stay, ["arm"]),
        counts=_joined(plays.counts, earlier.counts, stay, ["condition"]),
        askers=plays.askers if len(plays.askers) else earlier.askers,
        provenance=provenance.distinct([*earlier.provenance, *plays.provenance]),
        warnings=[*earlier.warnings, *plays.warnings],
    )


def _joined(here: pd.DataFrame, before: pd.DataFrame, stay: set[str], start: list[str]) -> pd.DataFrame:
    """Returns the rows of runs in `stay` from `before`, and all others from `here`.

    Rows without a run (initial policies) come from `before` if `here` has none with the same values of `start`.
    """
    here = here[~here["run"].isin(stay)]
    known = set(here.loc[here["run"] == "", start].itertuples(index=False, name=None))
    missing = np.array([key not in known for key in before[start].itertuples(index=False, name=None)], bool)
    chosen = before["run"].isin(stay) | ((before["run"] == "") & missing)
    return pd.concat([here, before[chosen]], ignore_index=True)
