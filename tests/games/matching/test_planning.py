"""The matching game for one: all that anyone sees, one plan."""

from __future__ import annotations

import pytest

from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.planning import PlanningEnv
from slim_rl.games.matching.state import GameState

STATE = GameState.from_dict(
    {
        "table": [[9, 1, 50], [1, 9, 1], [1, 1, 8]],
        "mask1": [[1, 0, 0], [1, 1, 1], [0, 0, 0]],
        "mask2": [[0, 1, 0], [0, 0, 1], [1, 1, 1]],
        "scale1": 2.0,
        "scale2": 3.0,
        "best_assignment_reward": 60,
    }
)


def dealt(max_errors: int = 3) -> PlanningEnv:
    env = PlanningEnv(max_errors)
    env.reset(STATE)
    return env


def test_it_shows_what_either_player_sees_in_true_scores() -> None:
    env = dealt()
    lines = env.get_state_description().splitlines()
    assert lines[1] == "Ava Li: BLEU 9, Electra 1, GloVe ?"
    assert lines[2] == "Daniel Nguyen: BLEU 1, Electra 9, GloVe 1"
    assert "partner" not in env.get_prompt_prefix()
    assert env.seats == 1


@pytest.mark.parametrize(("plan", "score"), [((2, 1, 0), 60), ((0, 1, 2), 26)])
def test_a_plan_ends_the_game_with_its_share_of_the_best(plan: tuple[int, ...], score: int) -> None:
    env = dealt()
    _, done, info = env.step(format_proposal(plan, STATE.roster))
    assert (done, info["end"], info["error"]) == (True, "finished", None)
    assert info["action"]["assignment"] == list(plan)
    assert env.get_normalized_reward() == pytest.approx(score / 60)
    assert env.step("[propose]")[1]
    assert env.get_normalized_reward() == pytest.approx(score / 60)


@pytest.mark.parametrize("text", ["", "[accept]", "[message] Ava Li on BLEU.", "[propose]\nBLEU: Ava Li", "\ud800"])
def test_anything_else_is_refused_until_there_were_too_many(text: str) -> None:
    env = dealt(max_errors=2)
    observation, done, info = env.step(text)
    assert not done
    assert info["action"] is None
    assert info["error"] and observation.startswith("Error:")
    _, done, info = env.step(text)
    assert (done, info["end"]) == (True, "errors")
    assert env.get_normalized_reward() == 0.0
