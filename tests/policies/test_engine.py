"""Engines by name, for programs: replies to prompts."""

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
def test_prompts_over_the_wire_are_answered_each_by_its_tokens(name: str, chat: Chat) -> None:
    made, key = SERVERS[name]
    with made(speak(chat), model=MODEL) as server, engine(name, MODEL, server=server.url, temperature=0.5) as model:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
        first, second = model.generate(["Hello.", messages])
    inputs = [request[key] for request in server.requests]
    assert {first, second} == {f"heard {len(ids)}" for ids in inputs} and len(inputs[0]) != len(inputs[1])
    assert chat.prompt_ids([{"role": "user", "content": "Hello."}]) in inputs


def test_model_in_this_process_repeats_itself_by_seed_alone() -> None:
    pytest.importorskip("transformers")
    said = []
    for seed in (1, 1, 2):
        with engine("transformers", MODEL, seed=seed, max_tokens=8) as model:
            said.append([*model.generate(["Hello."] * 3), *model.generate(["Hello."])])
    assert said[0] == said[1] != said[2] and len(set(said[0])) > 1


def test_what_cannot_be_opened_or_answered_is_one_sentence(chat: Chat) -> None:
    for name, settings, sentence in (
        ("hf", {}, r"engine 'hf' is unknown\. .*; hf is called transformers"),
        ("transformers", {"tempratur": 1}, r"policy\.tempratur"),
    ):
        with pytest.raises(ConfigError, match=sentence), engine(name, MODEL, **settings):
            pass
    with (
        SGLangServer(speak(chat), context_length=4, model=MODEL) as server,
        engine("sglang", MODEL, server=server.url) as model,
        pytest.raises(SlimError, match=r"The engine returned no reply: .*400"),
    ):
        model.generate(["Hello."])
