"""The ledger of asking: how far a dialogue ended below an ideal asker, net of a price a question, and where that was lost.

The ideal asker asks the best question, one at a time, until the next is expected to add less than its price (`frontier`). With N(k) what
it would have earned in this game with k questions, k the questions of the dialogue and m their mean over all dialogues of the same run,
checkpoint and partner, and S(m) what it would have earned with m questions on average, asked where they are expected to add the most,

    lost              ideal - (reward - price k)                    is exactly the sum of
    ... by number     ideal - S(m)                                  it asks, on average, too few or too many
    ... by stopping   S(m) - N(k)                                   as many in all, asked where they matter
    ... by choice     N(k) - (best plan by what it knew - price k)  as many in this game, but the best ones
    ... by use        best plan by what it knew - reward            its plan was not the best it could make, or was not agreed

in each dialogue, and so in every mean. A part may be below zero: by luck in one game; and on average where a message asks for several
pairs, which count as one question, where the ideal asks for one. What is called ideal looks one question ahead: on 2 × 2 boards, where the
optimum can be had by dynamic programming, it earns 0.006 to 0.011 less (`tests/analysis/test_ledger.py`). On larger ones it cannot be had:
what is known there are numbers, too many to go through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from slim_rl.analysis.load import Log
from slim_rl.analysis.plays import COMPARED
from slim_rl.dialogue.measures import MEASURES, Measure
from slim_rl.dialogue.record import Dialogue
from slim_rl.lab.askers import Askers, played_by
from slim_rl.lab.frontier import Floats, Frontier
from slim_rl.lab.net_reward import paid

_LOST = replace(MEASURES["reward"], better="down", role="secondary", bounded=False, signed=True)
LOSSES: dict[str, Measure] = {
    name: replace(_LOST, name=name, title=title, short=short)
    for name, title, short in (
        ("lost", "lost to the ideal asker", "lost"),
        ("lost_by_number", "lost by how many questions", "by how many"),
        ("lost_by_stopping", "lost by when it stopped", "by when"),
        ("lost_by_choice", "lost by which questions", "by which"),
        ("lost_by_use", "lost by its plan", "by its plan"),
    )
}
COMPARED.update(LOSSES)
CAPTION = (
    "The ledger of asking: what was earned less than an ideal asker earns, and where it was lost. The last four columns sum to the first; "
    "shares of the best score, net of the price a question."
)


def losses(
    ideal: Frontier, questions: ArrayLike, best_known: ArrayLike, reward: ArrayLike, price: ArrayLike
) -> dict[str, Floats]:
    """The ledger of dialogues of one policy: by name, (dialogues,).

    Args:
        ideal: of each dialogue's game.
        questions, best_known, reward: (dialogues,), as measured.
        price: of a question, one for all or one a dialogue.
    """
    k, known, earned, price = (np.asarray(numbers, dtype=float) for numbers in (questions, best_known, reward, price))
    if not len(k):
        return {name: np.empty(0) for name in LOSSES}
    stopped = ideal.net(ideal.stops(price), price)
    spent, own = ideal.spent(float(k.mean()), price), ideal.net(k, price)
    return {
        "lost": stopped - (earned - price * k),
        "lost_by_number": stopped - spent,
        "lost_by_stopping": spent - own,
        "lost_by_choice": own - (known - price * k),
        "lost_by_use": known - earned,
    }


def entered(log: Log, rows: pd.DataFrame, prices: Mapping[str, float], askers: Askers) -> pd.DataFrame:
    """Dialogues of `log.frame` that did not fail, with their ledger: NaN where their game has no ideal asker. `prices`: see `paid`."""
    out = rows.assign(**dict.fromkeys(LOSSES, np.nan))
    for part, ideal in played_by(log, rows, askers):
        ledger = losses(ideal, part["questions"], part["best_known"], part["reward"], paid(part, prices))
        out.loc[part.index, list(ledger)] = np.column_stack(list(ledger.values()))
    return out


def of_dialogues(
    dialogues: Sequence[Dialogue], measured_as: pd.DataFrame, price: float, askers: Askers
) -> dict[str, Floats]:
    """The ledger of dialogues of one policy that did not fail, of which `measured_as` has the measures. Empty without an ideal asker.
    `price` holds where a dialogue does not say its own.
    """
    if not dialogues:
        return {}
    games = [(dialogue.game_id, dialogue.seat) for dialogue in dialogues]
    ideal = askers.of(dialogues[0].environment, games, lambda i: dialogues[i].game_state)
    if ideal is None or measured_as["questions"].isna().any():
        return {}
    prices = [price if dialogue.price is None else dialogue.price for dialogue in dialogues]
    return losses(ideal, measured_as["questions"], measured_as["best_known"], measured_as["reward"], prices)
