"""Models that refuse request parameters, as reasoning models do: learned from the first refusals, kept, and told."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import ChatPolicyConfig, Limits, OpenAIConfig, Price, hosted, load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.partners import answers
from slim_rl.partners.cassette import request_key
from slim_rl.partners.openai_chat import ChatPolicy
from tests.dialogue.players import Script
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    GAME,
    GOOD_PLAN,
    QUESTION,
    VIEW,
    ask_many,
    partner_config,
    partner_of,
    recorded,
    view_after,
)
from tests.paths import ROOT

REFUSES = ("max_tokens", "temperature", "top_p", "seed")


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(refuses=REFUSES) as running:
        yield running


async def test_refused_parameters_are_learned_once_and_kept(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    partner = partner_of(server, top_p=0.9, concurrency=20)
    outcomes = await ask_many(partner, 20)
    assert [outcome.text for outcome in outcomes if isinstance(outcome, Turn)] == [ANSWER] * 20
    sent = server.requests[0]
    assert sent["max_completion_tokens"] == 300 and not sent.keys() & set(REFUSES)
    before = len(server.times)
    await ask_many(partner, 20)
    assert len(server.times) - before == 20, "no call asks what is known"
    assert partner.endpoint.spend.total.retries == 0 and partner.endpoint.spend.total.calls == 40
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "gpt-4.1-2025-04-14 refuses max_tokens, which is sent as max_completion_tokens.",
        "gpt-4.1-2025-04-14 refuses temperature, which is left out: its replies may differ from run to run.",
        "gpt-4.1-2025-04-14 refuses top_p, which is left out.",
        "gpt-4.1-2025-04-14 refuses seed, which is left out: its replies may differ from run to run.",
    ]


async def test_a_call_alone_hears_of_each_once(server: OpenAIServer) -> None:
    assert (await partner_of(server).act(VIEW)).text == ANSWER
    assert len(server.times) == 4, "max_tokens, temperature, seed; then the answer"


async def test_what_the_model_takes_is_kept(server: OpenAIServer) -> None:
    server.refuses = ("max_tokens", "temperature")
    partner = partner_of(server, temperature=1.0, reasoning_effort="minimal")
    await partner.act(VIEW)
    sent = server.requests[0]
    assert (sent["temperature"], sent["seed"], sent["reasoning_effort"]) == (1.0, 7, "minimal")
    assert "reasoning_effort" not in partner_of(server).endpoint.parameters()


async def test_a_refusal_in_mid_run_costs_no_game(server: OpenAIServer) -> None:
    server.refuses = ()
    partner = partner_of(server)
    await partner.act(VIEW)
    server.refuses = REFUSES  # the model behind the name is another one now
    assert all(isinstance(outcome, Turn) for outcome in await ask_many(partner, 10))


async def test_what_the_config_alone_can_change_is_no_dialect(server: OpenAIServer) -> None:
    server.refuses = ("reasoning_effort",)
    partner = partner_of(server, reasoning_effort="minimal")
    with pytest.raises(PartnerFailure, match="'reasoning_effort' does not support 'minimal' with this model"):
        await partner.act(VIEW)
    assert len(server.times) == 1 and partner.stopped is not None


async def test_refusal_of_unsent_parameter_ends_retries(server: OpenAIServer) -> None:
    server.refuses = ("max_tokens",)
    server.meets = lambda body: Step(
        "status", status=400, code="unsupported_parameter", param="max_tokens", message="Use 'max_completion_tokens'."
    )
    with pytest.raises(PartnerFailure, match="unsupported_parameter"):
        await partner_of(server).act(VIEW)
    assert len(server.times) == 2


async def test_the_record_tells_what_was_left_out(server: OpenAIServer, tokenizer: Any) -> None:
    partner = partner_of(server)
    asked = partner.identity
    assert asked["request"]["seed"] == "dialogue" and asked["request"]["temperature"] == 0.0 and "refused" not in asked
    chat = Chat(tokenizer)
    script = Script(chat, [QUESTION, GOOD_PLAN])
    dialogue = await play_dialogue(
        MatchingEnv(), script, partner, chat, Limits(turn_tokens=2000), game_state=GAME, id="d"
    )
    told = Dialogue.from_dict(json.loads(json.dumps(dialogue.to_dict()))).partner
    assert told["request"] == {"model": server.model, "max_completion_tokens": 300, "seed": None}
    assert told["refused"] == ["max_tokens", "seed", "temperature"]


async def test_a_policy_tells_it_too(server: OpenAIServer) -> None:
    policy = ChatPolicy(ChatPolicyConfig(model=server.model, base_url=server.url))
    await policy.act(view_after(seat=0))
    assert policy.identity["refused"] == ["max_tokens", "seed"], "the policy's temperature is 1, which all take"


# --- the cassette


async def test_a_cassette_is_addressed_by_what_the_config_asks(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    partner = partner_of(server, cassette=path)
    first, second = (view_after(QUESTION, seed=seed) for seed in (1, 2))
    await partner.act(first)  # before anything is learned
    await partner.act(second)  # and after
    keys = [row["key"] for row in recorded(path)]
    asked = {"model": server.model, "temperature": 0.0, "max_tokens": 300, "messages": partner.messages(first)}
    assert keys[0] == request_key(asked | {"seed": 1}, 1)
    sent = len(server.times)
    replayer = partner_of(server, cassette=path, cassette_mode="replay")
    assert [(await replayer.act(view)).text for view in (first, second)] == [ANSWER] * 2
    assert replayer.identity == partner.identity, "a replay is credited with no more than what was recorded"
    again = partner_of(server, cassette=path)
    assert (await again.act(first)).text == ANSWER and len(server.times) == sent
    await again.act(view_after(QUESTION, seed=3))
    assert len(server.times) == sent + 1, "what the cassette tells of the model need not be learned again"


async def test_a_cassette_of_a_model_that_takes_all_is_as_it_was(server: OpenAIServer, tmp_path: Path) -> None:
    server.refuses = ()
    await partner_of(server, cassette=tmp_path / "a.sqlite").act(VIEW)
    (row,) = recorded(tmp_path / "a.sqlite")
    assert "refused" not in row["answer"] and "reasoning_effort" not in row["request"]


async def test_replayed_words_are_cut_as_live_ones_are(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sqlite"
    server.answer = lambda body: "[message] " + "so " * 1000
    await partner_of(server, cassette=path).act(VIEW)
    monkeypatch.setattr(answers, "REPLY_CHARS", 50)
    for mode in ("replay", "auto"):
        short = partner_of(server, cassette=path, cassette_mode=mode).endpoint
        kept = await short.ask(partner_of(server).messages(VIEW), VIEW.seed)
        assert len(kept.text) == 50 and kept.finish_reason == "length"


# --- successors


@pytest.mark.parametrize(("named", "date"), [("2027-01-14", "2027-01-14"), (None, None), ("soon", None)])
async def test_the_end_of_a_model_is_the_endpoints_word(
    server: OpenAIServer, named: str | None, date: str | None
) -> None:
    server.shutdown = named
    assert await partner_of(server).endpoint.shutdown_date() == date


@pytest.mark.parametrize("model", ["gpt-5.4-mini-2026-03-17", "gpt-6-luna", "Qwen/Qwen3-32B"])
async def test_successor_setting_makes_a_working_partner(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's line of settings."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    guide = (ROOT / "docs" / "how-to" / "partners.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in guide if line.startswith(f"--set partner.openai.model={model} "))
    changes = shlex.split(line.replace("--set", ""))
    config = load_config(ROOT / "configs" / "matching.yaml", changes)
    assert config.partner.openai.model == model
    make_partner(config)  # its key, its price and its budget go together
    thinks = "gpt-" in model
    async with OpenAIServer(model=model, refuses=REFUSES[:3] if thinks else (), key="sk-test") as server:
        here = load_config(ROOT / "configs" / "matching.yaml", [*changes, f"partner.openai.base_url={server.url}"])
        partner = make_partner(here)
        assert partner is not None and (await partner.act(VIEW)).text == ANSWER
    (sent,) = server.requests
    if thinks:
        assert sent["reasoning_effort"] == "none" and sent["max_completion_tokens"] == 300
    else:
        assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_price_is_a_models_own_and_not_its_familys() -> None:
    names = hosted.PRICES
    assert hosted.entry_of("gpt-4.1-2025-04-14", names) == "gpt-4.1"
    assert hosted.entry_of("gpt-5.4-mini-2026-03-17", names) == "gpt-5.4-mini"
    assert hosted.entry_of("gpt-4o-2024-05-13", names) == "gpt-4o-2024-05-13"
    assert hosted.entry_of("gpt-4o-2024-08-06", names) == "gpt-4o"
    assert [hosted.entry_of(name, names) for name in ("gpt-5-pro", "gpt-5.2", "gpt-4o-audio-preview", "gpt-4")] == [
        None
    ] * 4


def test_the_built_in_prices_can_be_replaced() -> None:
    config = partner_config(None, model="gpt-5-pro", prices={"gpt-5-pro": {"input": 15, "output": 120}}).openai
    assert config.price == Price(input=15, output=120)
    assert partner_config(None, model="gpt-5").openai.price == Price(input=1.25, cached=0.125, output=10.0)


def test_cache_writes_have_their_price() -> None:
    luna, older = (OpenAIConfig(model=model).price for model in ("gpt-6-luna", "gpt-4.1"))
    assert luna is not None and luna.cost_usd(1_000_000, 500_000, 0, 400_000) == pytest.approx(0.01 + 0.005 + 0.05)
    assert older is not None and older.cost_usd(1_000_000, 0, 0, 400_000) == pytest.approx(2.0), "written at no charge"
