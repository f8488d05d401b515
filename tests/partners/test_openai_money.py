"""Tokens and money where the endpoint says nothing, or what cannot be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.games.matching.study.audit import audit
from slim_rl.http import Response
from slim_rl.partners.answers import LEARNED, MOST_TOKENS, AnswerReader, Fault, count_tokens
from slim_rl.partners.quoting import Secrets
from tests.fakes.openai_server import ODD_USAGE, OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, Asks, partner_of, play, view_after
from tests.partners.test_openai_endpoint import ask_many

BODY = {"model": "m", "max_tokens": 300, "messages": [{"role": "user", "content": "x" * 4000}]}
READER = AnswerReader(OpenAIConfig(), Secrets())
COUNTS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just(10**400))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running


@given(COUNTS, COUNTS, st.one_of(JSON, st.fixed_dictionaries({"cached_tokens": COUNTS})), st.text(max_size=200))
def test_counts_are_bounded_whatever_is_told(read: Any, written: Any, details: Any, text: str) -> None:
    usage = {"prompt_tokens": read, "completion_tokens": written, "prompt_tokens_details": details}
    counts = count_tokens(usage, BODY, text)
    assert 1 <= counts["input_tokens"] <= MOST_TOKENS
    assert 0 <= counts["output_tokens"] <= MOST_TOKENS
    assert 0 <= counts["cached_tokens"] <= counts["input_tokens"]
    assert all(type(counts[name]) is int for name in ("input_tokens", "cached_tokens", "output_tokens"))


@given(JSON)
def test_a_usage_of_any_shape_is_counted(usage: Any) -> None:
    assert count_tokens(usage, BODY, "hello")["input_tokens"] > 0


def test_what_can_be_is_believed_and_the_rest_estimated() -> None:
    details = {"cached_tokens": 512, "cache_write_tokens": 400}
    told = {"prompt_tokens": 1010, "completion_tokens": 12, "prompt_tokens_details": details}
    assert count_tokens(told, BODY, "x" * 40) == {
        "input_tokens": 1010,
        "cached_tokens": 512,
        "written_tokens": 400,
        "output_tokens": 12,
        "estimated": False,
    }
    guessed = {"input_tokens": 1004, "cached_tokens": 0, "written_tokens": 0, "output_tokens": 11, "estimated": True}
    assert count_tokens(None, BODY, "x" * 40) == guessed
    assert count_tokens({"prompt_tokens": 0, "completion_tokens": -1}, BODY, "x" * 40) == guessed
    assert count_tokens(told | {"prompt_tokens_details": {"cached_tokens": 1011}}, BODY, "x" * 40)["cached_tokens"] == 0
    thinking = count_tokens({"prompt_tokens": 1010, "completion_tokens": 5000}, BODY | {"max_tokens": None}, "x")
    assert thinking["output_tokens"] == 5000 and not thinking["estimated"], "thoughts are paid for and not seen"


@given(st.one_of(st.text(), JSON.map(json.dumps), JSON.map(lambda data: json.dumps({"choices": [{"message": data}]}))))
def test_an_answer_of_any_shape_is_read_or_refused(content: str) -> None:
    answer = READER.read(Response(200, content.encode("utf-8", "replace"), {}), BODY, ever_answered=False)
    if isinstance(answer, Fault):
        assert len(answer.why) < 400
    else:
        json.dumps(answer, ensure_ascii=False).encode()


@pytest.mark.parametrize("usage", [None, *ODD_USAGE], ids=str)
async def test_a_budget_holds_without_a_believable_usage(server: OpenAIServer, usage: Any) -> None:
    server.meets = lambda body: Step(usage=usage)
    partner = partner_of(server, budget_usd=0.05, concurrency=4)
    outcomes = await ask_many(partner, 60)
    answered = [outcome for outcome in outcomes if isinstance(outcome, Turn)]
    refused = [outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)]
    assert 2 <= len(answered) <= 30, "some 1,500 tokens each, at $2 a million"
    assert refused and set(refused) == {StopReason.BUDGET}
    assert all(outcome.usage is not None and outcome.usage.estimated == 1 for outcome in answered)
    assert 0.0475 <= partner.usage.cost_usd < 0.15


async def test_an_absurd_usage_holds_nothing_up(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    absurd = {"prompt_tokens": 10**12, "completion_tokens": 10**12}
    server.script.extend([Step(usage=absurd)])  # type: ignore[attr-defined]
    partner = partner_of(server, tokens_per_minute=6_000_000)
    await partner.act(view_after(QUESTION))
    assert all(isinstance(outcome, Turn) for outcome in await ask_many(partner, 20))
    assert partner.usage.estimated == 1
    assert len([record for record in caplog.records if "are estimated" in record.getMessage()]) == 1


async def test_game_ended_by_malformed_replies_records_cost(server: OpenAIServer) -> None:
    said = iter(["[message] It is 60.", *["malformed"] * 3])
    server.answer = lambda body: next(said)
    partner = partner_of(server, malformed_retries=2)
    dialogue = await play(partner, Asks())
    assert dialogue.stop_reason is StopReason.PARTNER_ERRORS and len(server.requests) == 4
    assert [turn.role for turn in dialogue.turns] == ["policy", "partner", "policy", "partner"]
    last = dialogue.turns[-1]
    assert last.usage is not None and last.usage.malformed == 2 and last.error == dialogue.failure
    cost = sum(turn.usage.cost_usd for turn in dialogue.turns if turn.usage)
    assert cost == pytest.approx(partner.usage.cost_usd) and cost > 0
    assert audit(dialogue)["malformed"] == (3, 4)


async def test_audit_counts_replies_with_words_outside_their_action(server: OpenAIServer) -> None:
    said = iter(["[message] It is 60.", "I see it.\n[message] 60.\n\nNow it knows.", "[message] 60."])
    server.answer = lambda body: next(said, "[accept]")
    dialogue = await play(partner_of(server), Asks())
    assert audit(dialogue)["aside"] == (1, 4) and audit(dialogue)["malformed"] == (0, 4)
    (aside,) = [turn for turn in dialogue.turns if turn.thought]
    assert aside.text == "[message] 60." and aside.thought is not None and "Now it knows." in aside.thought


@given(JSON, JSON, JSON | st.sampled_from([200, 400, "413", 422, 429, "9" * 5000]))
def test_fault_of_any_shape_is_one(error: Any, detail: Any, code: Any) -> None:
    shaped = {
        "error": {"message": error, "code": code, "param": error},
        "detail": detail,
        "choices": [{"error": detail}],
    }
    for body in (error, {"error": error, "code": code}, {"detail": [{"loc": detail, "msg": error}]}, [shaped], shaped):
        fault = READER.read(Response(400, json.dumps(body).encode(), {}), BODY, ever_answered=False)
        assert isinstance(fault, Fault) and len(fault.why) < 2000 and (fault.parameter or "seed") in {*BODY, *LEARNED}
