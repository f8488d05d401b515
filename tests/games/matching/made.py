"""A matching game small enough to follow."""

from __future__ import annotations

import pytest

from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState


@pytest.fixture
def game() -> GameState:
    """A 3x3 game whose best plan is the diagonal, 270; seat 0 sees the first two rows and seat 1 the last two columns."""
    return GameState(
        table=((90, 10, 20), (30, 90, 40), (50, 60, 90)),
        mask1=((True,) * 3, (True,) * 3, (False,) * 3),
        mask2=((False, True, True),) * 3,
        scale1=2.5,
        scale2=1.5,
        best_assignment_reward=270,
        roster=Roster.default(3),
    )
