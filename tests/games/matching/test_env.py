"""Rules of the matching game, of its aids and of its game for one: games of `games.yaml`, and any texts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.errors import DataError
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.planning import PlanningEnv
from slim_rl.games.matching.state import GameState, MatchingSettings

CASES = yaml.safe_load(Path(__file__).with_name("games.yaml").read_text(encoding="utf-8"))
PLANS = {"best": (0, 1, 2), "worse": (1, 0, 2)}


def facts(env: MatchingEnv | PlanningEnv, step: tuple[str, bool, dict[str, Any]]) -> dict[str, Any]:
    """Returns all that `games.yaml` may check after a step."""
    observation, done, info = step
    action = info.get("action") or {}
    out = {"error": None, **info, "observation": observation, "done": done, "assignment": action.get("assignment")}
    out |= {"turn": env.turn, "reward": round(env.get_normalized_reward(), 4)}
    for seat in range(env.seats):
        seen: dict[str, Any] = {"state": env.get_state_description(seat), "rules": env.get_prompt_prefix(seat)}
        if isinstance(env, MatchingEnv):
            view = env.get_private_view(seat)
            seen |= {"pending": view.pending, "plans_left": view.proposals_left, "turns_left": view.turns_left}
            seen |= {"table": view.table, "scale": view.scale, "seen": view.seen, "unseen": view.unseen}
            seen |= {"known": env.known(seat), "board": env.board(seat).cells}
        out |= {f"{name}{seat}": value for name, value in seen.items()}
    plain: dict[str, Any] = json.loads(json.dumps(out))
    return plain


@pytest.mark.parametrize("row", CASES, ids=lambda row: row["case"])
def test_game_is_played_as_its_case_says(row: dict[str, Any], game: GameState) -> None:
    state, settings = {**game.to_dict(), **row.get("state", {})}, row.get("game", {})
    planning = settings.get("planning")
    roster = GameState.from_dict(state).roster
    env, again = (PlanningEnv(planning) if planning else MatchingEnv(**settings) for _ in range(2))
    texts = [
        format_proposal(PLANS[each], roster) if isinstance(each, str) and each in PLANS else each
        for each in row["play"]
    ]
    for _ in range(2):  # a game that is dealt again begins anew
        env.reset(state)
        steps, found = [], facts(env, ("", False, {}))
        for each in texts:
            if isinstance(each, str):
                steps.append(env.step(each))
                found = facts(env, steps[-1])
                continue
            for name, value in each.items():
                what, _, how = name.partition(" ")
                if how:
                    assert [text in found[what] for text in value] == [how == "has"] * len(value), found[what]
                else:
                    assert found[what] == value, name
    again.reset(state)
    assert [again.step(text) for text in texts if isinstance(text, str)] == steps, "by its texts a game is had again"


@given(
    texts=st.lists(
        st.one_of(st.text(), st.sampled_from(["[accept]", "[reject]", "[message] a", "[propose]", "\ud800"])),
        max_size=30,
    )
)
def test_any_texts_can_be_played(texts: list[str]) -> None:
    state = {"table": [[9, 1], [1, 9]], "mask1": [[1, 0], [0, 1]], "mask2": [[0, 1], [1, 0]]}
    for env in (MatchingEnv(), PlanningEnv(3)):
        env.reset({**state, "scale1": 1.0, "scale2": 2.0, "best_assignment_reward": 18})
        for text in texts:
            observation, done, info = env.step(text)
            assert isinstance(observation, str) and done == ("end" in info)
            assert 0.0 <= env.get_normalized_reward() <= 1.0


def test_reset_without_a_state_or_unpacked_is_refused(game: GameState) -> None:
    with pytest.raises(DataError, match="game_state"):
        MatchingEnv().reset()
    with pytest.raises(TypeError, match=r"reset returns no observation; get_state_description"):
        _observation, _info = MatchingEnv().reset(game)


@pytest.mark.parametrize(
    "arms",
    [[f"train={{reward: price, reward_args: {{price: {price}}}}}" for price in (0, [0.02])],
     ["game.open_book=false", "game.open_book=true"]],
    ids=["price", "open_book"],
)  # fmt: skip
def test_arms_that_differ_in_no_rule_play_the_same_games(tmp_path: Path, arms: list[str]) -> None:
    files = [f"data.train={tmp_path}/train.jsonl", f"data.eval={tmp_path}/eval.jsonl"]
    few = ["data.num_train=20", "data.num_eval=4", "game.n=3", "game.hardness=0"]
    one, other = (load_rows(parse_config({}, [*files, *few, arm]), "eval") for arm in arms)
    assert len(one) == 4 and one == other


@pytest.mark.parametrize("planner", ["solver", "player"])
def test_short_rules_replace_only_the_policys_prompt(planner: str) -> None:
    state = next(generate_games(1, MatchingSettings()))
    env, full = (MatchingEnv(planner=planner, rules=rules) for rules in ("short", "full"))  # type: ignore[arg-type]
    for each in (env, full):
        each.reset(state)
    rules, table = env.prompt(0)
    assert table["content"].replace("\n- ", "\n") == full.prompt(0)[1]["content"]
    assert all(f"- {name}: " in table["content"] for name in state.roster.reviewers), "a space before, as in a question"
    assert rules["role"] == "system" and len(rules["content"]) < 0.5 * len(full.prompt(0)[0]["content"])
    assert {"[message]", "[propose]"} <= set(rules["content"].split())
    assert ("a line for every paper" in rules["content"]) is (planner == "player"), "a solver's plan is not written out"
    assert env.get_prompt_prefix(1) == full.get_prompt_prefix(1), "a chat partner reads all rules"
