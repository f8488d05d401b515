"""Runs whose logs are gone, or on another machine: they stay as the tables of an experiment's page have them.

The invariant: all of a run comes from one place, its logs or the tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from slim_rl import provenance
from slim_rl.analysis.plays import Plays


def kept(plays: Plays, earlier: Plays) -> Plays:
    """What logs show, and of runs without logs what the tables had. A run that has ended by the tables alone is taken from them."""
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
    """Runs that stay from `before`, all others from `here`; so too the start, which was played for all runs of each of `start`."""
    here = here[~here["run"].isin(stay)]
    known = set(here.loc[here["run"] == "", start].itertuples(index=False, name=None))
    missing = np.array([key not in known for key in before[start].itertuples(index=False, name=None)], bool)
    chosen = before["run"].isin(stay) | ((before["run"] == "") & missing)
    return pd.concat([here, before[chosen]], ignore_index=True)
