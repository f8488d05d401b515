"""A budget is hard: what calls may cost is set aside before they are sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.partners.answers import count_tokens, most_tokens
from slim_rl.partners.spend import FILE
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, partner_of, spend_elsewhere, view_after
from tests.partners.test_ledger import totals
from tests.partners.test_openai_endpoint import ANSWER, FLAT, VIEW, ask_many

SMALL = {"budget_reserve": 0.0, **FLAT}


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running


@pytest.mark.parametrize("budget", [0.05, 0.5])
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in the run's folder"])
async def test_a_budget_holds_with_256_calls_at_once(
    server: OpenAIServer, tmp_path: Path, budget: float, kept: bool
) -> None:
    server.latency = 0.01
    partner = partner_of(server, budget_usd=budget, concurrency=256, **SMALL)
    if kept:
        partner.keep_spend(tmp_path)
    outcomes = await ask_many(partner, 600)
    prices = [outcome.usage.cost_usd for outcome in outcomes if isinstance(outcome, Turn) and outcome.usage]
    refused = {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)}
    assert len(prices) < 600 and refused == {StopReason.BUDGET}
    assert budget <= partner.usage.cost_usd < budget + max(prices), "all of it, and one reply more at most"
    assert server.busiest > 1, "as many at once as the budget holds"
    if kept:
        (total,) = totals(tmp_path)
        assert total["cost_usd"] == pytest.approx(partner.usage.cost_usd) and total["reserved_usd"] == 0.0


async def test_calls_that_do_not_fit_wait_for_those_in_flight(server: OpenAIServer) -> None:
    server.latency = 0.01
    cost = (await partner_of(server, **FLAT).act(VIEW)).usage.cost_usd  # type: ignore[union-attr]
    outcomes = await ask_many(partner_of(server, budget_usd=40.5 * cost, concurrency=40, **SMALL), 40)
    assert [outcome.text for outcome in outcomes if isinstance(outcome, Turn)] == [ANSWER] * 40
    assert 1 < server.busiest < 40


async def test_what_a_call_set_aside_comes_back_however_it_ends(server: OpenAIServer) -> None:
    partner = partner_of(server, budget_usd=0.01, max_retries=0, request_seconds=0.5, **SMALL)
    server.meets = lambda body: Step("hang") if body["seed"] == 1 else Step("status", status=500)
    hanging = asyncio.create_task(partner.act(view_after(QUESTION, seed=1)))
    while not server.requests:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    with pytest.raises(PartnerFailure, match="HTTP 500"):  # waits until the first is over: the budget holds one
        await partner.act(view_after(QUESTION, seed=2))
    with pytest.raises(PartnerFailure, match="no answer within"):
        await hanging
    cancelled = asyncio.create_task(partner.act(view_after(QUESTION, seed=1)))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    server.meets = lambda body: None
    assert (await partner.act(view_after(QUESTION, seed=3))).text == ANSWER


async def test_what_cannot_be_set_aside_for_all_to_see_is_not_sent(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slim_rl.partners.store.BUSY_SECONDS", 0.05)
    spend_elsewhere(tmp_path, 0.1)
    partner = partner_of(server, budget_usd=1.0)
    partner.keep_spend(tmp_path)
    with (
        closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other,
        pytest.raises(PartnerFailure, match=f"{tmp_path / FILE}.*keeps it locked.*make it writable") as failure,
    ):
        other.execute("BEGIN IMMEDIATE")
        await partner.act(VIEW)
    assert failure.value.reason is StopReason.BUDGET and not server.requests
    assert (await partner.act(VIEW)).text == ANSWER


@pytest.mark.parametrize("usage", [True, None, {"prompt_tokens": 10**9, "completion_tokens": 10**9}], ids=str)
async def test_a_megabyte_of_reply_counts_as_max_tokens_at_most(server: OpenAIServer, usage: Any) -> None:
    server.script.extend([Step(text="[message] " + "so " * 350_000, usage=usage)])  # type: ignore[attr-defined]
    reply = await partner_of(server, budget_usd=10.0).act(VIEW)
    assert reply.usage is not None and reply.usage.malformed == 1
    assert reply.usage.output_tokens <= 300 + 20, "the long one, and the one after it"
    assert reply.usage.estimated == 1


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 1e12, "completion_tokens": 1e12}])
@pytest.mark.parametrize("text", ["", "so " * 100_000])
@pytest.mark.parametrize("limit", [{"max_tokens": 300}, {"max_completion_tokens": 7}, {}])
def test_nothing_is_counted_that_was_not_set_aside(usage: Any, text: str, limit: dict[str, int]) -> None:
    body = {"messages": [{"role": "user", "content": "what é"}] * 9, **limit}
    counts = count_tokens(usage, body, text)
    read, written = most_tokens(body)
    assert counts["input_tokens"] <= read and counts["output_tokens"] <= written
