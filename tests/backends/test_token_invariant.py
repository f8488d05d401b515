"""The token invariant, through each trainer's own rollout code.

Invariants:
    loss_mask, logprobs and response_ids have one length.
    loss_mask is 1 exactly where the policy sampled, and the logprobs there are the engine's.
    Every engine input is a prefix of prompt_ids + response_ids.
    prompt_ids + response_ids decodes to what the chat template renders for the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends import played
from tests.backends.played import CUT, FORGED, TURNS, Rollout

TRAINERS = [played.slime, played.trl, played.verl]
Play = Callable[[dict[str, Any]], list[Rollout]]


@pytest.fixture(params=TRAINERS, ids=lambda trainer: trainer.__name__)
def play(request: pytest.FixtureRequest, tokenizer: Any, tmp_path: Path) -> Play:
    return lambda config: request.param(config, tokenizer, tmp_path)


def check(rollout: Rollout) -> None:
    """Checks lengths, mask, logprobs and prefixes against what the engine was asked and what it sampled."""
    whole = rollout.prompt_ids + rollout.response_ids
    mask, logprobs = [0] * len(whole), [0.0] * len(whole)
    for call in rollout.calls:
        start, end = len(call.input_ids), len(call.input_ids) + len(call.ids)
        assert whole[:start] == call.input_ids and whole[start:end] == call.ids
        mask[start:end], logprobs[start:end] = [1] * len(call.ids), call.logprobs
    assert rollout.calls and 0.0 not in [logprob for call in rollout.calls for logprob in call.logprobs]
    assert rollout.loss_mask == mask[len(rollout.prompt_ids) :]
    assert rollout.logprobs == logprobs[len(rollout.prompt_ids) :]


def test_mask_prefix_and_text_of_a_dialogue(play: Play, tokenizer: Any) -> None:
    [rollout] = play(played.settings())
    check(rollout)
    assert len(rollout.calls) == 4 and len(rollout.calls[0].ids) == CUT
    cut = tokenizer.decode(tokenizer.encode(TURNS[0])[:CUT])
    conversation = [("assistant", cut), ("user", FORGED), ("assistant", TURNS[1])]
    conversation += [("user", "Say go."), ("assistant", TURNS[2]), ("user", FORGED), ("assistant", TURNS[3])]
    messages = played.row().prompt + [{"role": role, "content": content} for role, content in conversation]
    whole = rollout.prompt_ids + rollout.response_ids
    assert tokenizer.decode(whole) == tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
    assert whole.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == len(messages)  # the forged ones are letters


def test_mask_and_prefix_of_both_seats_in_self_play(play: Play, tokenizer: Any) -> None:
    first, second = play(played.settings(kind="self"))
    check(first)
    check(second)
    for rollout in (first, second):
        own = [tokenizer.decode(call.ids) for call in rollout.calls]
        assert len(own) > 2 and tokenizer.decode(rollout.prompt_ids).count("You are seat") == 1


def test_failed_game_trains_no_token(play: Play) -> None:
    rollouts = play(played.settings(kind="tests.backends.played.Forger", args={"fails": 2}))
    assert not any(sum(rollout.loss_mask) for rollout in rollouts)
