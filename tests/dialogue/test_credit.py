"""Credit by the turn: shaping moves no total, failed dialogues have no say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.credit import Paid, by_token, check_credit, returns, shaped, turn_advantages, turn_payments
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.errors import ConfigError

_SHARE = st.floats(0, 1)
_VALUES = st.lists(_SHARE, min_size=1, max_size=6)


def paid(group: str, reward: float | None, values: list[float]) -> Paid:
    return Paid(group, [] if reward is None else shaped(reward, values))


@settings(max_examples=50, deadline=None)
@given(_SHARE, _VALUES)
def test_from_each_turn_on_the_payments_add_up_to_the_reward_less_what_was_known(
    reward: float, values: list[float]
) -> None:
    assert returns(shaped(reward, values)) == pytest.approx([reward - before for before in values])
    alone = returns(shaped(reward, values), decay=0)
    assert alone == pytest.approx([after - before for before, after in zip(values, [*values[1:], reward], strict=True)])
    assert sum(alone) == pytest.approx(reward - values[0])


def test_what_a_question_costs_is_taken_off_the_turn_that_asks_it() -> None:
    """Two questions at 0.05, and a plan that earns 0.9: by itself each turn has its own price, and all together what was paid."""
    config = parse_config({"environment": "tests.backends.paid_batch.Known"}, ["train.question_price=0.05"])
    asking = [Turn(0, "policy", "?", {"kind": "message"}, questions=["pair"], seeking=True)] * 2
    turns = [*asking, Turn(0, "policy", "[propose]", {"kind": "propose"}, questions=[])]
    dialogue = Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns, reward=0.9)
    (found,) = turn_payments([dialogue], [0.8], config)  # state values 0, 0.1 and 0.2
    assert found.turns == pytest.approx([0.05, 0.05, 0.7])
    shuffled = config.changed(train={"reward": "shuffled"})
    assert turn_payments([dialogue], [0.8], shuffled)[0].turns == pytest.approx([0.1, 0.1, 0.6])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | _SHARE, _VALUES), min_size=1, max_size=8), _SHARE)
def test_a_group_is_compared_by_its_dialogues_and_failed_ones_have_no_say(rows: list[Any], decay: float) -> None:
    group = [paid("a", *row) for row in rows]
    found = turn_advantages(group, decay, scale=False)
    assert [len(each) for each in found] == [0 if reward is None else len(values) for reward, values in rows]
    assert sum(each[0] for each in found if each) == pytest.approx(0, abs=1e-9)
    among_others = turn_advantages([paid("b", 1.0, [0.0]), *group, paid("b", 0.0, [0.3])], decay, scale=False)
    assert among_others[1:-1] == found
    assume(sum(reward is not None for reward, _ in rows) > 1)
    played = [each for each in group if each.turns]
    assert turn_advantages(played, decay, scale=False) == [each for each in found if each]


def test_where_there_is_nothing_to_compare_there_is_no_advantage() -> None:
    assert turn_advantages([paid("a", 0.7, [0.5, 0.5]), paid("a", 0.7, [0.5])]) == [[0.0, 0.0], [0.0]]
    alone = [paid("a", 0.7, [0.5, 0.6]), paid("a", None, [])]
    assert turn_advantages(alone) == [[0.0, 0.0], []]


def test_a_turns_tokens_have_its_advantage_and_no_others() -> None:
    turns = [Turn(0, "policy", "a", span=(0, 2)), Turn(1, "partner", "b"), Turn(0, "policy", "c", span=(4, 5))]
    dialogue = Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns)
    assert by_token(dialogue, [0.5, -1.0], 6) == [0.5, 0.5, 0.0, 0.0, -1.0, 0.0]
    assert by_token(dialogue, [], 3) == [0.0, 0.0, 0.0], "a failed one has none"


def test_a_dialogue_in_which_the_policy_had_no_turn_has_no_say() -> None:
    found = turn_advantages([paid("a", 0.0, []), paid("a", 1.0, [0.5]), paid("a", 0.0, [0.5])], scale=False)
    assert found == [[], [0.5], [-0.5]]


def test_a_game_that_does_not_say_what_knowledge_is_worth_is_refused() -> None:
    check_credit(parse_config({}, ["train.credit=turn"]))
    with pytest.raises(ConfigError, match=r"train\.credit"):
        check_credit(parse_config({"environment": "examples.secret_number.SecretNumber"}, ["train.credit=turn"]))
