"""The invariants of a rollout, through each trainer's own rollout code.

Invariants:
    loss_mask, logprobs and response_ids have one length.
    loss_mask is 1 exactly where the policy sampled, and the logprobs there are the engine's.
    Every engine input is a prefix of prompt_ids + response_ids.
    prompt_ids + response_ids decodes to what the chat template renders for the conversation.
    A dialogue has one line in the log, with its step and the same tokens; the line has the game's reward, whatever training gives.
    A failed dialogue is logged and trains no token.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.secret_number import reward
from tests.backends import played
from tests.backends.played import ALONE, CUT, FORGED, GUESSES, STEP, TURNS, Played

TRAINERS = [played.slime, played.trl, played.verl]
Play = Callable[..., Played]


@pytest.fixture(params=TRAINERS, ids=lambda trainer: trainer.__name__)
def play(request: pytest.FixtureRequest, tokenizer: Any, tmp_path: Path) -> Play:
    return lambda held_out=False, **changes: request.param(played.scene(**changes), tokenizer, tmp_path, held_out)


def check(found: Played, held_out: bool = False) -> None:
    """Checks masks, logprobs and prefixes against what the engine was asked and what it sampled; and the log against both."""
    assert len(found.log) == len(found.rollouts)
    for line, rollout in zip(found.log, found.rollouts, strict=True):
        whole = rollout.prompt_ids + rollout.response_ids
        mask, logprobs = [0] * len(whole), [0.0] * len(whole)
        for call in rollout.calls:
            start, end = len(call.input_ids), len(call.input_ids) + len(call.ids)
            assert whole[:start] == call.input_ids and whole[start:end] == call.ids
            mask[start:end], logprobs[start:end] = [1] * len(call.ids), call.logprobs
        assert rollout.calls and 0.0 not in [logprob for call in rollout.calls for logprob in call.logprobs]
        assert rollout.loss_mask == mask[len(rollout.prompt_ids) :]
        assert rollout.logprobs == logprobs[len(rollout.prompt_ids) :]
        assert (line.phase, line.step) == (("eval", STEP + 1) if held_out else ("train", STEP))
        assert (line.prompt_ids, line.response_ids) == (rollout.prompt_ids, rollout.response_ids)
        assert (line.loss_mask, line.logprobs) == (rollout.loss_mask, rollout.logprobs)
        assert line.reward is not None and not line.failed


@pytest.mark.parametrize("held_out", [False, True])
def test_mask_prefix_text_and_reward_of_a_dialogue(play: Play, tokenizer: Any, held_out: bool) -> None:
    found = play(held_out)
    check(found, held_out)
    [rollout], [line] = found.rollouts, found.log
    assert len(rollout.calls) == 4 and len(rollout.calls[0].ids) == CUT
    cut = tokenizer.decode(tokenizer.encode(TURNS[0])[:CUT])
    conversation = [("assistant", cut), ("user", FORGED), ("assistant", TURNS[1])]
    conversation += [("user", "Say go."), ("assistant", TURNS[2]), ("user", FORGED), ("assistant", TURNS[3])]
    messages = [{"role": role, "content": content} for role, content in conversation]
    messages = played.scene().game.prompt + messages
    whole = rollout.prompt_ids + rollout.response_ids
    assert tokenizer.decode(whole) == tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
    assert whole.count(tokenizer.eos_token_id) == len(messages)  # the forged ones are letters
    cost = 0.0 if held_out else 0.02 * sum(rollout.loss_mask)
    assert line.reward == 1.0 and rollout.reward == pytest.approx(1.0 - cost)


def test_mask_prefix_and_groups_of_both_seats_in_self_play(play: Play, tokenizer: Any) -> None:
    found = play(partner={"kind": "self"}, train={"stop_failures": 1.0, "group_size": 4})
    check(found)
    assert [(line.seat, rollout.reward) for line, rollout in zip(found.log, found.rollouts, strict=True)] == [
        (0, found.log[0].reward),
        (1, found.log[0].reward),
    ]
    assert len({line.id for line in found.log}) == len({line.group for line in found.log}) == 2
    for rollout in found.rollouts:
        assert len(rollout.calls) > 2 and tokenizer.decode(rollout.prompt_ids).count("You are seat") == 1


def test_game_for_one_is_answered_by_the_environment(play: Play) -> None:
    found = play(**ALONE, partner={})
    check(found)
    [line] = found.log
    assert [turn.text for turn in line.turns if turn.role == "policy"] == GUESSES
    assert (line.stop_reason, line.reward) == ("finished", reward([2, 7, 5], 5, 3))


def test_turn_that_is_cut_ends_the_dialogue_by_default(play: Play) -> None:
    found = play(limits={"turn_tokens": CUT, "dialogue_tokens": 400})
    check(found)
    [line] = found.log
    assert (line.stop_reason, line.reward, sum(line.loss_mask)) == ("turn_tokens", 0.0, CUT)


def test_failed_game_is_logged_and_trains_no_token(play: Play) -> None:
    found = play(partner={"kind": "tests.backends.played.Forger", "args": {"fails": 2}})
    assert not any(sum(rollout.loss_mask) for rollout in found.rollouts)
    assert [(line.stop_reason, line.failure, line.reward) for line in found.log] == [("partner_failed", "down", None)]
