"""Agreement of belief credit (`lab.belief`) with the values of questions that the game computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.load import Log, read_dialogue

HEADING = "Belief credit and question values"
CAPTION = (
    "Correlation, over single questions, of the change of the policy's log-probability of the truth with the question's value: its expected "
    "value, and the true gain of its answer. Over all training steps and each quarter of them, within runs, with 95% jackknife intervals over games."
)
_QUARTERS = 4
_VALUES = {"question_value": "expected value", "gain": "true gain"}


def correlations(log: Log) -> list[dict[str, Any]]:
    """Returns the correlations per arm and value, of all steps and of each quarter; empty without beliefs."""
    if "belief" not in log.frame:
        return []
    rows = log.frame[log.frame["belief"].notna() & ~log.frame["failed"]]
    questions = pd.DataFrame([one for row in rows.itertuples() for one in _questions(log, row)])
    if questions.empty:
        return []
    last, out = int(rows["step"].max()) + 1, []
    quarters = [(last * n // _QUARTERS, last * (n + 1) // _QUARTERS) for n in range(_QUARTERS)]
    for arm, played in questions.groupby("arm", sort=False):
        for value, title in _VALUES.items():
            for first, end in [(0, last), *quarters]:
                part = played[played["step"].between(first, end - 1)]
                estimate = st.within_correlation(part["change"], part[value], part["run"], part["cluster"])
                if np.isfinite(estimate.value):
                    out.append({"arm": arm, "value of": title, "steps": f"{first + 1} to {end}", **asdict(estimate)})
    return out


def _questions(log: Log, row: Any) -> Iterator[dict[str, Any]]:
    """Yields the questions of a dialogue that another turn of the policy follows: change of belief, and values."""
    turns = [turn for turn in read_dialogue(log, row)["turns"] if turn["role"] == "policy"]
    for turn, following in pairwise(turns):
        beliefs = turn.get("belief"), following.get("belief")
        if turn.get("seeking") and None not in beliefs:
            values = {name: turn.get(name) for name in _VALUES}
            change = following["belief"] - turn["belief"]
            yield {
                "arm": row.arm,
                "run": row.run,
                "step": row.step,
                "cluster": str(row.cluster),
                "change": change,
                **values,
            }
