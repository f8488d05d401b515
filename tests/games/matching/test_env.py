"""The game's rules: turns, answers, errors, ends and rewards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.errors import DataError
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState

BEST, WORSE = (0, 1, 2), (1, 0, 2)  # 270 and 130 of 270


def dealt(game: GameState, **limits: int | None) -> MatchingEnv:
    env = MatchingEnv(**limits)  # type: ignore[arg-type]
    env.reset(game)
    return env


def test_agreement_on_the_best_plan_is_worth_one(game: GameState) -> None:
    env = dealt(game)
    observation, done, info = env.step("[message] Hi")
    assert (observation, done, info["seat"], env.turn) == ("[message] Hi", False, 0, 1)
    assert info["action"] == {"kind": "message", "text": "Hi"}
    proposal = format_proposal(BEST, game.roster)
    observation, done, info = env.step(proposal)
    assert observation == f"{proposal}\nAnswer with [accept] or [reject]."
    assert info["action"]["assignment"] == [0, 1, 2]
    assert json.loads(json.dumps(info)) == info
    assert env.get_normalized_reward() == 0.0
    observation, done, info = env.step("[accept]")
    assert (observation, done, info["seat"], info["end"]) == ("[accept]", True, 0, "agreed")
    assert env.get_normalized_reward() == 1.0


def test_a_worse_plan_is_worth_its_share(game: GameState) -> None:
    env = dealt(game)
    env.step(format_proposal(WORSE, game.roster))
    env.step("[accept]")
    assert env.get_normalized_reward() == pytest.approx(130 / 270)


def test_a_rejection_passes_the_turn_and_clears_the_proposal(game: GameState) -> None:
    env = dealt(game, max_proposals=None)
    env.step(format_proposal(WORSE, game.roster))
    assert env.get_private_view(1).pending == WORSE
    assert env.get_private_view(0).pending is None
    observation, done, _ = env.step("[reject] Ava is weak on Electra.")
    assert (observation, done, env.turn) == ("[reject] Ava is weak on Electra.", False, 0)
    assert env.get_private_view(0).pending is None
    assert env.step("[accept]")[2]["error"] is not None


@pytest.mark.parametrize("most", [1, 2])
def test_the_game_ends_when_a_players_last_plan_is_rejected(game: GameState, most: int) -> None:
    env = dealt(game, max_proposals=most)
    plan = format_proposal(WORSE, game.roster)
    for left in range(most, 0, -1):
        assert env.get_private_view(0).proposals_left == left
        env.step(plan)
        observation, done, info = env.step("[reject]")
        assert (observation, done) == ("[reject]", left == 1)
        if not done:  # the other's plans are counted by themselves, and a refused action is no plan
            assert env.get_private_view(1).proposals_left == most
            env.step("[propose]")
            env.step("[message] Then another.")
            env.step("[message] Yes.")
    assert (info["end"], env.get_normalized_reward()) == ("rejected", 0.0)
    plans = "one plan; if it" if most == 1 else "2 plans; if the last of them"
    assert f"Each of you may propose {plans} is rejected, the game ends and scores 0." in env.get_prompt_prefix(0)


def test_any_number_of_plans_by_dialops_own_rule(game: GameState) -> None:
    env = dealt(game, max_proposals=None, max_turns=1000)
    for _ in range(50):
        env.step(format_proposal(WORSE, game.roster))
        assert not env.step("[reject]")[1]
        env.step("[message] Hm.")
        env.step("[message] Hm.")
    assert env.get_private_view(0).proposals_left is None
    assert "may propose" not in env.get_prompt_prefix(0)


def test_an_error_leaves_the_turn_and_costs_none(game: GameState) -> None:
    env = dealt(game)
    observation, done, info = env.step("Hi")
    assert observation == f"Error: {info['error']}"
    assert (done, info["seat"], info["action"], env.turn) == (False, 0, None, 0)
    assert env.get_private_view(0).turns_left == 20


def test_errors_in_a_row_end_the_game(game: GameState) -> None:
    env = dealt(game, max_errors=2)
    env.step("Hi")
    env.step("[message] Hi")
    env.step("oops")
    env.step("[message] Hi")
    assert not env.step("oops")[1]
    _, done, info = env.step("oops")
    assert (done, info["end"], info["seat"], env.get_normalized_reward()) == (True, "errors", 0, 0.0)


def test_turns_run_out(game: GameState) -> None:
    env = dealt(game, max_turns=2)
    assert not env.step("[message] Hi")[1]
    _, done, info = env.step(format_proposal(BEST, game.roster))
    assert (done, info["end"], env.get_normalized_reward()) == (True, "max_turns", 0.0)


def test_the_last_turn_may_accept(game: GameState) -> None:
    env = dealt(game, max_turns=2)
    env.step(format_proposal(BEST, game.roster))
    _, done, info = env.step("[accept]")
    assert (done, info["end"], env.get_normalized_reward()) == (True, "agreed", 1.0)


def test_nothing_happens_after_the_end(game: GameState) -> None:
    env = dealt(game)
    env.step(format_proposal(BEST, game.roster))
    env.step("[accept]")
    _, done, info = env.step("[message] more")
    assert (done, info["end"], info["action"]) == (True, "agreed", None)
    assert env.get_normalized_reward() == 1.0


def test_a_seat_sees_its_own_cells_and_scale_only(game: GameState) -> None:
    env = dealt(game)
    view = env.get_private_view(1)
    assert view.table == ((None, 15, 30), (None, 135, 60), (None, 90, 135))
    assert view.scale == 1.5
    state = env.get_state_description(1)
    assert "Ava Li: BLEU ?, Electra 15, GloVe 30" in state
    assert "225" not in state  # seat 0's 90 at its scale
    assert "You speak first." in env.get_state_description(0)
    assert "You speak first." not in state


def test_the_prompt_fits_the_game(game: GameState) -> None:
    env = MatchingEnv(max_turns=12)
    env.reset(game.to_dict())
    rules = env.get_prompt_prefix(0)
    assert all(
        text in rules for text in ("3 papers", "12 turns", "scales", "[message]", "[propose]", "[accept]", "[reject]")
    )
    assert "Noah" not in rules
    one_scale = MatchingEnv()
    one_scale.reset({**game.to_dict(), "scale1": 1.0, "scale2": 1.0})
    assert "scales" not in one_scale.get_prompt_prefix(0)


def test_own_names_are_used_everywhere(game: GameState) -> None:
    roster = Roster(("Xu", "Yang", "Zed"), ("One: a", "Two: b", "Three: c"))
    own = GameState.from_dict({**game.to_dict(), "reviewers": roster.reviewers, "papers": roster.papers})
    env = dealt(own)
    assert "Xu: One 225" in env.get_state_description(0)
    assert "Ava" not in env.get_prompt_prefix(0) + env.get_state_description(0)
    assert env.step("[propose]\nOne: Xu\nTwo: Yang\nThree: Zed")[2]["error"] is None


def test_a_game_can_be_had_again_by_its_texts(game: GameState) -> None:
    texts = [
        "oops", "[message] a", "[message] b", format_proposal(WORSE, game.roster), "no", "[reject] c",
        "[message] d",
    ]  # fmt: skip
    first, second = dealt(game), dealt(game)
    assert [first.step(text) for text in texts] == [second.step(text) for text in texts]
    assert first.get_private_view(0) == second.get_private_view(0)
    first.reset(game)
    assert first.get_private_view(0) == dealt(game).get_private_view(0)


@given(
    texts=st.lists(
        st.one_of(st.text(), st.sampled_from(["[accept]", "[reject]", "[message] a", "[propose]"])), max_size=30
    )
)
def test_any_texts_can_be_played(texts: list[str]) -> None:
    state = {"table": [[9, 1], [1, 9]], "mask1": [[1, 0], [0, 1]], "mask2": [[0, 1], [1, 0]]}
    env = MatchingEnv()
    env.reset({**state, "scale1": 1.0, "scale2": 2.0, "best_assignment_reward": 18})
    for text in texts:
        observation, done, info = env.step(text)
        assert isinstance(observation, str)
        assert done == ("end" in info)
        assert 0.0 <= env.get_normalized_reward() <= 1.0


def test_reset_without_a_state_is_refused() -> None:
    with pytest.raises(DataError, match="game_state"):
        MatchingEnv().reset()


def test_open_book_changes_the_view_not_the_partner(game: GameState) -> None:
    closed, opened = MatchingEnv(), MatchingEnv(open_book=True)
    for env in (closed, opened):
        env.reset(game)
    assert "Sofia Patel: BLEU ?, Electra ?, GloVe ?" in closed.get_state_description(0)
    assert "Sofia Patel: BLEU ?, Electra 150, GloVe 225" in opened.get_state_description(0)  # its own scale, 2.5
    assert opened.known(0)[2] == (None, 150, 225)
    for seat in (0, 1):
        assert closed.get_private_view(seat) == opened.get_private_view(seat)


def test_a_price_changes_no_game(tmp_path: Path) -> None:
    files = [
        f"data.train={tmp_path}/train.jsonl",
        f"data.eval={tmp_path}/eval.jsonl",
        "data.num_train=3",
        "data.num_eval=3",
    ]
    deals = [
        load_rows(parse_config({}, [*files, f"train={{reward: price, reward_args: {{price: {price}}}}}"]), "eval")
        for price in (0, [0.02])
    ]
    assert [row.game_state for row in deals[0]] == [row.game_state for row in deals[1]]


def test_arms_with_and_without_open_book_play_the_same_games(tmp_path: Path) -> None:
    files = [f"data.train={tmp_path}/train.jsonl", f"data.eval={tmp_path}/eval.jsonl", "data.num_train=20"]
    files += ["data.num_eval=4", "game.n=3", "game.hardness=0"]
    closed = load_rows(parse_config({}, files), "eval")
    assert load_rows(parse_config({}, [*files, "game.open_book=true"]), "eval") == closed


def test_unpacking_a_reset_says_where_the_observation_is() -> None:
    with pytest.raises(TypeError, match=r"reset returns no observation; get_state_description"):
        _observation, _info = MatchingEnv().reset(
            GameState(((50,),), ((True,),), ((True,),), 1.0, 1.0, 50, Roster.default(1))
        )
