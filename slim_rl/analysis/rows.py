"""Rows of the frame: one logged dialogue as names and measures."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from slim_rl.analysis import partner_faults
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.measures import MEASURES, annotated, measures, not_measured
from slim_rl.dialogue.record import Dialogue


def row_of(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns a flat row from a line of the log at `path`. Raises ValueError for an invalid dialogue."""
    dialogue = of_line(data)
    step, numbers = data.get("step"), measures(dialogue)
    row = {
        "arm": str(dialogue.arm or dialogue.partner.get("kind") or "unnamed"),
        "run": str(dialogue.run or path.parent.name),
        "phase": dialogue.phase,
        "step": float("nan") if step is None else float(step),
        "id": dialogue.id,
        "game_id": dialogue.game_id,
        "cluster": f"{dialogue.game_id}:{zlib.crc32(orjson.dumps(data.get('game_state'))):08x}",
        "environment": dialogue.environment,
        "seat": dialogue.seat,
        "seed": dialogue.seed,
        "group": dialogue.group,
        "policy": _identity(dialogue.policy),
        "mode": str(dialogue.policy.get("intervention") or "free"),
        "partner": _identity(dialogue.partner),
        "settings": sys.intern(orjson.dumps(dialogue.settings, option=orjson.OPT_SORT_KEYS).decode()),
        "price": float("nan") if dialogue.price is None else dialogue.price,
        "failed": dialogue.failed,
        "cost_usd": _cost(dialogue),
        "annotated": sys.intern(annotated(dialogue)),
        **numbers,
        **partner_faults.columns_of(dialogue),
    }
    if not all(isinstance(numbers[name], int | float) for name in MEASURES):
        raise ValueError("a measure is not a number")
    columns = {name: value for name, value in dialogue.columns.items() if isinstance(value, bool | int | float | str)}
    return columns | row


def without_unmeasured(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with NaN instead of 0 for measures that a game does not have."""
    for environment, rows in frame.groupby("environment", observed=True):
        if absent := not_measured(str(environment), rows["annotated"].unique()):
            frame[absent] = frame[absent].astype(float)
            frame.loc[rows.index, absent] = float("nan")
    return frame.drop(columns="annotated")


def _cost(dialogue: Dialogue) -> float:
    """Returns the cost of the dialogue's API calls, in US dollars; NaN if there were none."""
    usages = [turn.usage for turn in dialogue.turns if turn.usage is not None]
    return sum(usage.get("cost_usd") or 0.0 for usage in usages) if usages else math.nan


def _identity(identity: Mapping[str, Any]) -> str:
    """Returns a short name: the kind and, if known, the model."""
    named = [str(identity[key]) for key in ("kind", "name", "model", "checkpoint") if identity.get(key)]
    return " ".join(dict.fromkeys(named)) or "unnamed"
