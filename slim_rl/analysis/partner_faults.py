"""Partner faults and their effect on the reward, so that a policy is not credited with its partner's errors.

Invariant: the game defines the faults (`partner_faults` of its environment); this module counts them. In the frame each kind has
two columns: how often it happened, and how often it could have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import game_of
from slim_rl.measured import NO_FAULT, measured

_FAULTS, _CASES = "faults: ", "cases: "  # prefixes of the columns


def faults_of(dialogue: Dialogue) -> Mapping[str, tuple[int, int]]:
    """Returns (faults, cases) per kind of fault; empty if the game's audit fails, without dropping the dialogue."""
    try:
        return measured(game_of(dialogue.environment)).partner_faults(dialogue)
    except Exception:  # a custom game may raise anything
        return {}


def columns_of(dialogue: Dialogue) -> dict[str, int]:
    """Returns the fault columns of a dialogue's row."""
    faults = {name: pair for name, pair in faults_of(dialogue).items() if not name.endswith(NO_FAULT)}
    return {
        f"{kind}{name}": n for name, pair in faults.items() for kind, n in zip((_FAULTS, _CASES), pair, strict=True)
    }


def is_column(name: str) -> bool:
    """Returns True if a frame's column counts faults or cases."""
    return name.startswith((_FAULTS, _CASES))


def partner_faults(frame: pd.DataFrame, training: str) -> Iterator[dict[str, Any]]:
    """Yields faults, reward, and reward of dialogues without a fault, per arm, partner and checkpoint.

    The phase `training` has one row per arm and partner, the other phases one per checkpoint.
    """
    names = [name.removeprefix(_FAULTS) for name in frame.columns if name.startswith(_FAULTS)]
    if not names:
        return
    keyed = frame.assign(step=frame["step"].where(frame["phase"] != training))
    for (arm, partner), part in keyed.groupby(["arm", "partner"], observed=True):
        points = list(part.groupby(["phase", "step"], observed=True, dropna=False))
        for (phase, step), rows in sorted(points, key=lambda item: (np.nan_to_num(item[0][1], nan=-1.0), item[0][0])):
            clean = rows[(rows[[_FAULTS + name for name in names]] == 0).all(axis=1)]
            sums = {name: (rows[_FAULTS + name].sum(), rows[_CASES + name].sum()) for name in names}
            yield {
                "arm": arm,
                "partner": partner,
                "phase": phase,
                "step": step,
                "dialogues": len(rows),
                "clean": int(clean["reward"].notna().sum()),
                "reward": asdict(_reward(rows)),
                "clean_reward": asdict(_reward(clean)),
                "faults": {
                    name: {"faults": int(faults), "cases": int(cases)} for name, (faults, cases) in sums.items()
                },
            }


def _reward(rows: pd.DataFrame) -> st.Estimate:
    return st.clustered_mean(rows["reward"], rows["cluster"].cat.codes, bounded=True)
