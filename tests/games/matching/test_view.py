"""What a seat sees: every cell once, shown or not, and what was said by whom."""

from __future__ import annotations

from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.state import GameState


def test_cells_are_seen_or_unseen(game: GameState) -> None:
    env = MatchingEnv()
    env.reset(game)
    view = env.get_private_view(0)
    assert view.seen == [(r, p) for r in range(2) for p in range(3)] and view.unseen == [(2, 0), (2, 1), (2, 2)]
    assert view[0, 0] == 225 and view[2, 1] is None
    assert sorted(view.seen + view.unseen) == view.pairs
    assert view.roster.pair((0, 1)) == "Ava Li on Electra"


def test_words_are_told_apart_by_seat() -> None:
    history = (Utterance(0, "a"), Utterance(1, "b"), Utterance(0, "c", "refused"), Utterance(0, "d"))
    view = View(0, "", "", history, None, seed=0)
    assert (view.sent, view.received) == (["a", "d"], ["b"])
