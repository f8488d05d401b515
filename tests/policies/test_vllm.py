"""The policy behind a vLLM server, over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.players import PolicyFailure
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import Diverged
from slim_rl.policies.served import VLLMPolicy, _turn
from tests.dialogue.players import Countdown, Says
from tests.fakes.sglang_server import Faults
from tests.fakes.vllm_server import VLLMServer


def said(chat: Chat) -> Any:
    return lambda ids, rng: chat.said_ids(f"go {rng.randrange(100)}")


async def test_a_dialogue_over_the_wire(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    with VLLMServer(said(chat), faults=Faults(error=0.2)) as server:
        policy = VLLMPolicy(server.url, "tiny", temperature=0.7, stop_ids=chat.stop_ids)
        dialogue = await play_dialogue(
            Countdown(6), policy, Says("go on"), chat, Limits(), game_state={}, id="d", seat=0
        )
    assert dialogue.stop_reason is StopReason.AGREED
    whole = dialogue.prompt_ids + dialogue.response_ids
    for request in server.requests:
        assert request["prompt"] == whole[: len(request["prompt"])] and request["key"] == "d"
        assert request["temperature"] == 0.7 and request["repetition_penalty"] == 1.0
        assert set(chat.stop_ids) <= set(request["stop_token_ids"])
    assert sum(dialogue.loss_mask) == sum(logprob < 0 for logprob in dialogue.logprobs)
    assert dialogue.policy == {"engine": "vllm", "model": "tiny", "temperature": 0.7, "top_p": 1.0}


async def test_a_turn_may_be_cut_at_its_limit(tokenizer: Any) -> None:
    with VLLMServer(said(Chat(tokenizer))) as server:
        policy = VLLMPolicy(server.url, "tiny")
        sampled = await policy.sample([1, 2, 3], 2, "d")
    assert (len(sampled.ids), len(sampled.logprobs), sampled.finish) == (2, 2, "length")


@pytest.mark.parametrize(
    ("settings", "model", "message"),
    [
        ({"knows_ids": False}, "tiny", "return_token_ids"),
        ({}, "another", "does not exist"),
        ({"context_length": 8}, "tiny", "maximum context length"),
    ],
)
async def test_what_cannot_work_fails_at_once(tokenizer: Any, settings: Any, model: str, message: str) -> None:
    with VLLMServer(said(Chat(tokenizer)), **settings) as server:
        policy = VLLMPolicy(server.url, model)
        with pytest.raises(PolicyFailure, match=message):
            await policy.sample([1, 2, 3], 8, "d")
        assert len(server.requests) == 1


def test_probabilities_that_are_no_numbers_are_seen_as_such() -> None:
    choice = {"token_ids": [1, 2], "finish_reason": "stop", "logprobs": {"token_logprobs": [None, None]}}
    with pytest.raises(Diverged):
        _turn({"choices": [choice]}, VLLMPolicy.read)
