"""The policy behind an SGLang or a vLLM server, over the wire."""

import asyncio
import math
from typing import Any
from unittest.mock import AsyncMock

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import PolicyFailure
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import Diverged
from slim_rl.http import Client, EngineError
from slim_rl.policies.served import SGLangPolicy, VLLMPolicy, read, sample_turn
from tests.dialogue.players import Countdown, Says
from tests.fakes.openai_server import OpenAIServer, Step
from tests.fakes.sglang_server import Faults, SGLangServer
from tests.fakes.vllm_server import VLLMServer
from tests.made import play


def said(chat: Chat) -> Any:
    return lambda ids, rng: chat.said_ids(f"go {rng.randrange(100)}")


SERVED = {"sglang": (SGLangServer, SGLangPolicy, "input_ids"), "vllm": (VLLMServer, VLLMPolicy, "prompt")}


@pytest.mark.parametrize(("engine", "served"), SERVED.items(), ids=SERVED)
async def test_a_dialogue_over_the_wire(tokenizer, engine: str, served: Any) -> None:
    server_of, policy_of, input_key = served
    chat = Chat(tokenizer)
    faults = Faults(error=0.2, abort=0.2 * (engine == "sglang"))
    with server_of(said(chat), faults=faults) as server:
        policy = policy_of(server.url, "tiny", temperature=0.7, stop_ids=chat.stop_ids)
        dialogue = await play(Countdown(6), policy, Says("go on"), {}, chat)
    assert dialogue.stop_reason is StopReason.AGREED
    whole = dialogue.prompt_ids + dialogue.response_ids
    for request in server.requests:
        params = request.get("sampling_params", request)
        assert request[input_key] == whole[: len(request[input_key])] and request["key"] == "d"
        assert params["temperature"] == 0.7 and params.get("repetition_penalty", 1.0) == 1.0
        assert params.get("top_k", 0) == params.get("min_p", 0) == 0, "a checkpoint's habits do not count"
        assert set(chat.stop_ids) <= set(params["stop_token_ids"])
    assert sum(dialogue.loss_mask) == sum(logprob < 0 for logprob in dialogue.logprobs)
    assert dialogue.policy == {"engine": engine, "model": "tiny", "temperature": 0.7, "top_p": 1.0}


@pytest.mark.parametrize("served", SERVED.values(), ids=SERVED)
async def test_turn_is_cut_at_its_limit_without_a_proxy(tokenizer: Any, served: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with served[0](said(Chat(tokenizer))) as server:
        sampled = await served[1](server.url, "tiny").sample([1, 2, 3], 2, "d")
    assert (len(sampled.ids), len(sampled.logprobs), sampled.finish) == (2, 2, "length")


# engine, its settings, what is said, number of requests: one if the same request would be refused again
UNANSWERED: list[tuple[str, dict[str, Any], str, int]] = [
    ("sglang", {"faults": Faults(error=1.0)}, "500", 2),  # at once and after 0.1 s; the next would be after 0.3 s
    ("sglang", {"faults": Faults(garbage=1.0)}, "no turn in the engine's answer", 2),
    ("sglang", {"faults": Faults(abort=1.0)}, "aborted", 2),
    ("sglang", {"context_length": 4}, "400", 1),
    ("sglang", {"broken": True}, "are not finite numbers", 1),
    ("vllm", {"knows_ids": False}, "return_token_ids", 1),
    ("vllm", {"model": "another"}, "does not exist", 1),
    ("vllm", {"context_length": 8}, "maximum context length", 1),
]


@pytest.mark.parametrize(("engine", "settings", "message", "requests"), UNANSWERED)
async def test_engine_without_tokens_fails_the_dialogue(
    tokenizer: Any, engine: str, settings: dict[str, Any], message: str, requests: int
) -> None:
    server_of, policy_of, _ = SERVED[engine]
    with server_of(said(Chat(tokenizer)), **settings) as server:
        with pytest.raises((PolicyFailure, Diverged), match=message) as failure:
            await policy_of(server.url, "tiny", retry_seconds=0.25).sample([1, 2, 3], 8, "d")
        assert len(server.requests) == requests
    assert isinstance(failure.value, Diverged) == ("broken" in settings)
    assert isinstance(failure.value, Diverged) or failure.value.reason is StopReason.ENGINE_FAILED
    with pytest.raises(PolicyFailure, match="Cannot connect"):  # the server is gone
        await policy_of(server.url, retry_seconds=0.0).sample([1], 1, "d")


async def test_client_of_engines_follows_no_redirect() -> None:
    body = {"model": OpenAIServer.model, "messages": [{"role": "user", "content": "x"}]}
    async with OpenAIServer() as server:
        url = f"{server.url}/chat/completions"
        server.script.append(Step("status", status=307, headers={"Location": url}))  # type: ignore[attr-defined]
        with pytest.raises(EngineError, match="status 307"):
            await Client().post(url, body)
    assert len(server.requests) == 1


def answer(logprobs: list[float | None] | None, finish: str = "stop", **meta: Any) -> dict[str, Any]:
    if logprobs is not None:
        meta["output_token_logprobs"] = [[logprob, token, None] for token, logprob in enumerate(logprobs)]
    return {"meta_info": {"finish_reason": {"type": finish}, **meta}}


def answer_of_vllm(logprobs: list[float | None], **usage: Any) -> dict[str, Any]:
    return {
        "choices": [{"token_ids": [1, 2], "finish_reason": "stop", "logprobs": {"token_logprobs": logprobs}}],
        "usage": usage,
    }


@pytest.mark.parametrize(
    ("answered", "message"),
    [
        *((answer([-0.5, hole, -0.1]), "no finite logprob for 1 of 3") for hole in (None, math.nan, -math.inf)),
        (answer(None, completion_tokens=8), "0 token ids and 0 logprobs for 8 sampled tokens"),
        (answer(None), "0 token ids"),
        (answer(None, output_token_logprobs=[[-0.5, -1, None]]), "0 token ids and 1 logprobs"),
        (answer([-0.5], completion_tokens=2), "1 token ids and 1 logprobs for 2"),
        (answer_of_vllm([-0.5]), "2 token ids and 1 logprobs"),
        (answer_of_vllm([-0.5, -0.1], completion_tokens=3), "2 token ids and 2 logprobs for 3"),
        (answer_of_vllm([None, None]), "are not finite numbers"),
    ],
)
async def test_sample_turn_without_all_logprobs_fails_at_once(answered: Any, message: str) -> None:
    post = AsyncMock(return_value=answered)
    with pytest.raises((PolicyFailure, Diverged), match=message):
        await sample_turn(post, {}, read if "meta_info" in answered else VLLMPolicy.read, 60.0)
    assert post.call_count == 1


@pytest.mark.parametrize(
    ("finish", "read_as"), [("repetition", "length"), ("content_filter", "length"), ("stop", "stop")]
)
async def test_sample_turn_with_an_engines_own_reason_is_cut_at_once(finish: str, read_as: str) -> None:
    post = AsyncMock(return_value=answer([-0.5, -0.1], finish))
    sampled = await sample_turn(post, {}, read, 60.0)
    assert (sampled.finish, sampled.ids, post.call_count) == (read_as, [0, 1], 1)


async def test_an_aborted_dialogue_waits_for_nothing() -> None:
    fail = AsyncMock(side_effect=OSError("down"))
    assert (await sample_turn(fail, {}, read, 60.0, lambda: fail.called)).finish == "abort"
    assert (await sample_turn(fail, {}, read, 60.0, lambda: True)).finish == "abort"
    assert fail.call_count == 1


async def test_cancelling_a_turn_cancels_it(tokenizer) -> None:
    with SGLangServer(said(Chat(tokenizer)), delay=30.0) as server:
        task = asyncio.create_task(SGLangPolicy(server.url).sample([1, 2, 3], 8, "d"))
        await server.received(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
