"""A budget stops the calls: what is spent over it was in flight when it was reached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.partners.spend import FOLDER
from tests.fakes.openai_server import OpenAIServer
from tests.partners.openai_setup import partner_of, spend_elsewhere
from tests.partners.test_ledger import totals
from tests.partners.test_openai_endpoint import ANSWER, FLAT, VIEW, ask_many


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in the run's folder"])
@pytest.mark.parametrize("concurrency", [1, 16, 256])
async def test_budget_is_exceeded_by_calls_in_flight_at_most(
    server: OpenAIServer, tmp_path: Path, concurrency: int, kept: bool
) -> None:
    server.latency = 0.01
    budget = 0.05
    partner = partner_of(server, budget_usd=budget, concurrency=concurrency, **FLAT)
    if kept:
        partner.keep_spend(tmp_path)
    outcomes = await ask_many(partner, 600)
    prices = [outcome.usage.cost_usd for outcome in outcomes if isinstance(outcome, Turn) and outcome.usage]
    refused = {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)}
    assert len(prices) < 600 and refused == {StopReason.BUDGET}
    assert budget <= partner.usage.cost_usd <= budget + concurrency * max(prices)
    assert sum(prices) == pytest.approx(partner.usage.cost_usd), "what was paid for is played"
    if kept:
        (total,) = totals(tmp_path)
        assert total["cost_usd"] == pytest.approx(partner.usage.cost_usd)


async def test_budget_spent_by_another_process_stops_this_one(server: OpenAIServer, tmp_path: Path) -> None:
    partner = partner_of(server, budget_usd=1.0)
    partner.keep_spend(tmp_path)
    assert (await partner.act(VIEW)).text == ANSWER
    spend_elsewhere(tmp_path, 1.0)
    with pytest.raises(PartnerFailure, match=r"budget of \$1\.00 is spent \(\$1\.0\d+\)\. Raise") as failure:
        await partner.act(VIEW)
    assert failure.value.reason is StopReason.BUDGET and len(server.requests) == 1


async def test_spending_that_cannot_be_read_stops_the_calls(server: OpenAIServer, tmp_path: Path) -> None:
    spend_elsewhere(tmp_path, 0.1)
    (file,) = (tmp_path / FOLDER).glob("*.json")
    text = file.read_text()
    file.write_text("{")
    partner = partner_of(server, budget_usd=1.0)
    partner.keep_spend(tmp_path)
    with pytest.raises(PartnerFailure, match=f"{file} is not valid JSON") as failure:
        await partner.act(VIEW)
    assert failure.value.reason is StopReason.BUDGET and not server.requests
    file.write_text(text)
    assert (await partner.act(VIEW)).text == ANSWER
