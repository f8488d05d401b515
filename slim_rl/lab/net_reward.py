"""The net reward: a dialogue's reward less what its questions cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from slim_rl.analysis.plays import COMPARED
from slim_rl.dialogue.measures import MEASURES

NET_REWARD = replace(MEASURES["reward"], name="net_reward", title="net reward", bounded=False, signed=True, ceiling=1.0)
COMPARED[NET_REWARD.name] = NET_REWARD


def paid(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.Series[float]:
    """What a question cost in each dialogue: what its log says, else what `prices` says of its arm, else nothing."""
    named = rows["arm"].map(prices).astype(float).fillna(0.0)
    return rows["price"].fillna(named)


def with_net_reward(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """The dialogues with a column of their net reward. `prices`: see `paid`."""
    return rows.assign(**{NET_REWARD.name: rows["reward"] - paid(rows, prices) * rows["questions"].fillna(0.0)})
