"""Net reward: a dialogue's reward minus the cost of its questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from slim_rl.analysis.held_out import COMPARED
from slim_rl.dialogue.measures import MEASURES
from slim_rl.lab.askers import question_costs

NET_REWARD = replace(MEASURES["reward"], name="net_reward", title="net reward", bounded=False, signed=True, ceiling=1.0)
COMPARED[NET_REWARD.name] = NET_REWARD


def with_net_reward(rows: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """Returns the dialogues with a column of their net reward; `prices` as for `question_costs`."""
    costs = question_costs(rows, prices) * rows["questions"].fillna(0.0)
    return rows.assign(**{NET_REWARD.name: rows["reward"] - costs})
