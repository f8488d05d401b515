"""Measures of the lab; importing this module adds them to those that runs can be compared by (`held_out.comparable`)."""

from dataclasses import replace

import numpy as np

from slim_rl.analysis.held_out import COMPARED
from slim_rl.dialogue.measures import ANY, MEASURES, Measure

NET_REWARD = replace(MEASURES["reward"], name="net_reward", title="net reward", within=(-np.inf, 1.0))
_LOST = replace(MEASURES["reward"], better="down", role="secondary", within=ANY)
LOSSES: dict[str, Measure] = {  # of the gap to the ideal asker (`gap`)
    name: replace(_LOST, name=name, title=title, short=short)
    for name, title, short in (
        ("lost", "gap to the ideal asker", "gap"),
        ("lost_by_number", "gap from the number of questions", "gap: count"),
        ("lost_by_stopping", "gap from when it stops", "gap: stopping"),
        ("lost_by_choice", "gap from the choice of questions", "gap: choice"),
        ("lost_by_use", "gap from its plan", "gap: plan"),
    )
}
COMPARED.update({each.name: each for each in (NET_REWARD, MEASURES["informative_forced"])} | LOSSES)
