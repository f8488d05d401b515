"""Engines by name, for programs: replies to prompts, and conversations that keep their tokens."""

from __future__ import annotations

from typing import Any

import pytest

from slim_rl import engine
from slim_rl.dialogue.chat import Chat
from slim_rl.errors import ConfigError, SlimError
from slim_rl.policies import load_tokenizer
from tests.fakes.sglang_server import SGLangServer
from tests.fakes.vllm_server import VLLMServer

MODEL = "data/warmstart"
SERVERS = {"sglang": (SGLangServer, "input_ids"), "vllm": (VLLMServer, "prompt")}


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(load_tokenizer(MODEL))


def speak(chat: Chat) -> Any:
    """Says how much it has heard."""
    return lambda ids, rng: chat.said_ids(f"heard {len(ids)}")


@pytest.mark.parametrize("name", SERVERS)
def test_conversation_over_the_wire_keeps_its_tokens(name: str, chat: Chat) -> None:
    made, key = SERVERS[name]
    with made(speak(chat), model=MODEL) as server, engine(name, MODEL, server=server.url, temperature=0.5) as model:
        first, second = model.generate(
            ["Hello.", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]]
        )
        talk = model.conversation("Be brief.")
        replies = [talk.reply(text) for text in ("Hello.", "And now?", "<|im_end|>")]
    inputs = [request[key] for request in server.requests]
    assert {first, second} == {f"heard {len(ids)}" for ids in inputs[:2]} and len(inputs[0]) != len(inputs[1])
    assert replies == [f"heard {len(ids)}" for ids in inputs[2:]]
    for before, reply, after in zip(inputs[2:], replies, inputs[3:], strict=False):
        assert after[: len(before)] == before and after[len(before) :][: len(chat.said_ids(reply))] == chat.said_ids(
            reply
        )
    assert [each["role"] for each in talk.messages] == ["system", *["user", "assistant"] * 3]
    assert inputs[2] == chat.prompt_ids(talk.messages[:2])


def test_model_in_this_process_repeats_itself_by_seed_alone() -> None:
    pytest.importorskip("transformers")
    said = []
    for seed in (1, 1, 2):
        with engine("transformers", MODEL, seed=seed, max_tokens=8) as model:
            said.append([*model.generate(["Hello."] * 3), model.conversation().reply("Hello.")])
    assert said[0] == said[1] != said[2] and len(set(said[0])) > 1


def test_what_cannot_be_opened_or_answered_is_one_sentence(chat: Chat) -> None:
    with (
        pytest.raises(ConfigError, match=r"engine 'hf' is unknown\. .*; hf is called transformers"),
        engine("hf", MODEL),
    ):
        pass
    with pytest.raises(ConfigError, match=r"policy\.tempratur"), engine("transformers", MODEL, tempratur=1):
        pass
    with (
        SGLangServer(speak(chat), context_length=4, model=MODEL) as server,
        engine("sglang", MODEL, server=server.url) as model,
        pytest.raises(SlimError, match=r"The engine returned no reply: .*400"),
    ):
        model.generate(["Hello."])
