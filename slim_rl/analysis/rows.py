"""A logged dialogue as one row of a frame: its names, and every measure as a number."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from slim_rl.analysis import partner_faults
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue


def annotated(data: dict[str, Any]) -> Dialogue:
    """A line's dialogue, annotated as its game annotates now."""
    dialogue = Dialogue.from_dict(data)
    annotate(dialogue, again=False)
    return dialogue


def row_of(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Flat. `data`: a line of the log at `path`. Raises AttributeError, KeyError, TypeError or ValueError if it has not a dialogue's form."""
    dialogue = annotated(data)
    step = data.get("step")
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
        "price": float("nan") if dialogue.price is None else dialogue.price,
        "failed": dialogue.failed,
        "cost_usd": _cost(dialogue),
        **measures(dialogue),
        **partner_faults.columns_of(dialogue),
    }
    if not all(isinstance(value, _FORM.get(name, int | float)) for name, value in row.items()) or row["seat"] not in (
        0,
        1,
    ):
        raise ValueError("a name, number or seat that is none")
    own = {name: value for name, value in dialogue.columns.items() if isinstance(value, bool | int | float | str)}
    return own | row


# Of a row's values; all others are numbers
_FORM = {
    **dict.fromkeys(("arm", "run", "phase", "cluster", "environment", "policy", "mode", "partner", "stop_reason"), str),
    **dict.fromkeys(("id", "game_id", "group"), str | int | None),
    "seed": int | float | None,
}


def _cost(dialogue: Dialogue) -> float:
    """US dollars for the partner's calls; NaN where it is behind no endpoint."""
    usages = [turn.usage for turn in dialogue.turns if turn.usage is not None]
    return sum(usage.get("cost_usd") or 0.0 for usage in usages) if usages else math.nan


def _identity(identity: Mapping[str, Any]) -> str:
    """A short name: the kind and, if given, the model."""
    named = [str(identity[key]) for key in ("kind", "name", "model", "checkpoint") if identity.get(key)]
    return " ".join(dict.fromkeys(named)) or "unnamed"
