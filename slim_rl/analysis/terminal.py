"""The short tables a run ends with: measures with 95% intervals, errors clustered by game."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from rich.table import Table

from slim_rl.analysis.statistics import Estimate, clustered_mean, paired_comparison
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue

# measure, how it is called, whether it is a share
SHOWN = (
    ("reward", "reward", False),
    ("seeking", "questions a game", False),
    ("informative_pairs", "informative pairs asked a game", False),
    ("agreed", "agreement rate", True),
    ("valid_proposals", "valid proposals", True),
)


def frame(dialogues: Sequence[Dialogue]) -> pd.DataFrame:
    """One row a dialogue that did not fail: its measures, game_id and seat."""
    rows = [{"game_id": d.game_id, "seat": d.seat, **measures(d)} for d in dialogues if not d.failed]
    return pd.DataFrame(rows, columns=None if rows else ["game_id", "seat", *(name for name, _, _ in SHOWN)])


def cells_table(cells: Mapping[str, Sequence[Dialogue]], title: str) -> Table:
    """One column a cell, one row a measure."""
    table = Table(title=title, caption="mean [95% interval, clustered by game]")
    table.add_column("")
    frames = {name: frame(dialogues) for name, dialogues in cells.items()}
    for name, data in frames.items():
        table.add_column(f"{name} (n={len(data)})", justify="right")
    for measure, label, share in SHOWN:
        estimates = [clustered_mean(data[measure].astype(float), data["game_id"]) for data in frames.values()]
        table.add_row(label, *(shown(estimate, share) for estimate in estimates))
    return table


def before_after_table(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> Table:
    """Held-out games before and after training, and the paired difference on the same games."""
    table = Table(
        title="held-out games, before and after training",
        caption="mean [95% interval, clustered by game]; the difference is paired on the same games",
    )
    for column in ("", f"before (n={len(before)})", f"after (n={len(after)})", "difference", "p"):
        table.add_column(column, justify="left" if not column else "right")
    first, last = frame(before), frame(after)
    for measure, label, share in SHOWN:
        pairs = [data.set_index("game_id")[measure].astype(float).dropna() for data in (first, last)]
        estimates = [clustered_mean(data[measure].astype(float), data["game_id"]) for data in (first, last)]
        row = [shown(estimate, share) for estimate in estimates]
        difference = paired_comparison(pairs[0], pairs[1]).difference
        p = "" if math.isnan(difference.p) else f"{difference.p:.2g}"
        table.add_row(label, *row, shown(difference, share, sign=True), p)
    return table


def shown(estimate: Estimate, share: bool = False, sign: bool = False) -> str:
    """'0.81 [0.79, 0.83]', or per cent for a share."""
    factor, form = (100, ".1f") if share else (1, ".3f")
    unit = "%" if share else ""
    value = f"{estimate.value * factor:{'+' if sign else ''}{form}}{unit}"
    if math.isnan(estimate.low):
        return value
    return f"{value} [{estimate.low * factor:{form}}, {estimate.high * factor:{form}}]"
