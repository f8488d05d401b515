"""The endpoint under every fault of an API: retries, limits, outages, money, event loops."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import logging
import time
import warnings

import pytest
from pydantic import ValidationError

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.errors import ConfigError
from slim_rl.partners.openai_chat import OpenAIPartner
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    VIEW,
    ask_many,
    partner_config,
    partner_of,
    script,
    until,
)

BUSY = Step("status", status=429, code="rate_limit_exceeded", message="Slow down.")


def patience(step: Step) -> dict[str, float]:
    """Short only where the wait is known to be in vain."""
    return {"request_seconds": 0.5 if step.kind == "hang" else 5.0}


@pytest.mark.parametrize("step", [Step("status", status=500), Step("cut"), Step("junk"), Step("hang")])
async def test_tries_are_bounded(server: OpenAIServer, step: Step) -> None:
    script(server, *[step] * 10)
    with pytest.raises(
        PartnerFailure, match=r"No reply from http://127\.0\.0\.1:\d+/v1 in 3 tries; the last one: "
    ) as failure:
        await partner_of(server, max_retries=2, **patience(step)).act(VIEW)
    assert failure.value.reason is StopReason.PARTNER_FAILED
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    assert len(server.requests) == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured(server: OpenAIServer, form: str) -> None:
    begun = time.monotonic()
    after: float | str = 0.4
    if form == "date":  # whole seconds only
        after = email.utils.formatdate(time.time() + 2, usegmt=True)
    script(server, Step("status", status=429, retry_after=after))
    await partner_of(server).act(VIEW)
    assert time.monotonic() - begun >= (0.4 if form == "seconds" else 0.99)
    assert len(server.requests) == 2


@pytest.mark.parametrize("after", [None, 0, 0.01])
async def test_a_small_retry_after_does_not_shorten_the_backoff(
    server: OpenAIServer, after: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(server, *[Step("status", status=503, retry_after=after)] * 4)
    monkeypatch.setattr("random.Random.uniform", lambda _, low, high: high)
    partner, begun = partner_of(server), time.monotonic()
    partner.endpoint.first_wait, partner.endpoint.longest_wait = 0.05, 1.0
    await partner.act(VIEW)
    assert time.monotonic() - begun >= 0.05 + 0.1 + 0.2 + 0.4


async def test_a_turn_has_a_deadline(server: OpenAIServer) -> None:
    script(server, *[Step("hang")] * 20)
    with pytest.raises(PartnerFailure, match=r"in 2 s; the last one: no answer within"):
        await partner_of(server, request_seconds=0.8, turn_seconds=2.0, max_retries=50).act(VIEW)
    assert 2 <= len(server.requests) <= 4


async def test_a_busy_endpoint_gets_all_the_patience_of_a_turn(server: OpenAIServer) -> None:
    script(server, *[BUSY] * 12)
    settings = {"max_retries": 1}
    reply = await partner_of(server, **settings).act(VIEW)
    assert reply.usage is not None and reply.usage.retries == 12
    script(server, *[BUSY] * 500)
    with pytest.raises(PartnerFailure, match=r"No reply from .* in 0\.2 s; the last one: "):
        await partner_of(server, turn_seconds=0.2, **settings).act(VIEW)


async def test_requests_in_flight_are_bounded(server: OpenAIServer) -> None:
    server.latency = 0.02
    outcomes = await ask_many(partner_of(server, concurrency=3), 20)
    assert all(isinstance(outcome, Turn) for outcome in outcomes)
    assert server.busiest == 3


async def test_requests_a_minute_are_bounded(server: OpenAIServer) -> None:
    begun = time.monotonic()
    await ask_many(partner_of(server, requests_per_minute=600), 16)  # ten at once, then one every 0.1 s
    assert time.monotonic() - begun >= 0.6


async def test_tokens_a_minute_are_bounded(server: OpenAIServer) -> None:
    usage = (await partner_of(server).act(VIEW)).usage
    assert usage is not None
    each = usage.input_tokens + usage.output_tokens
    begun = time.monotonic()
    await ask_many(partner_of(server, tokens_per_minute=each * 600), 16)
    assert time.monotonic() - begun >= 0.4


async def test_an_outage_is_said_once_and_costs_no_game(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    partner = partner_of(server, failures=4)
    assert (await partner.act(VIEW)).text == ANSWER
    server.down = True
    asked = asyncio.create_task(ask_many(partner, 50))
    await until(lambda: partner.endpoint.breaker.is_open)
    await asyncio.sleep(0.3)
    assert not asked.done()
    server.down = False
    outcomes = await asked
    assert [outcome.text for outcome in outcomes if isinstance(outcome, Turn)] == [ANSWER] * 50
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "failed" in said[0] and "Calls wait for it" in said[0] and server.url in said[0]
    assert "answers again" in said[1]


async def test_failed_probes_take_none_of_a_calls_tries(server: OpenAIServer) -> None:
    server.down = True
    partner = partner_of(server, failures=2, seconds=0.0, max_retries=2)
    asked = asyncio.create_task(ask_many(partner, 2))
    await until(lambda: partner.endpoint.breaker.is_open)
    await asyncio.sleep(0.5)
    server.down = False
    assert [outcome.text for outcome in await asked if isinstance(outcome, Turn)] == [ANSWER] * 2


async def test_an_outage_that_lasts_stops_the_run(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    server.down = True
    partner = partner_of(server, failures=4, outage_wait_minutes=0.5 / 60)
    outcomes = await ask_many(partner, 30)
    assert all(isinstance(outcome, PartnerFailure) for outcome in outcomes)
    assert partner.stopped is not None and "has not answered" in partner.stopped and "resume the run" in partner.stopped
    assert {str(outcome) for outcome in outcomes} == {partner.stopped}
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    server.down = False
    outcomes = await ask_many(partner, 100)
    assert all(isinstance(outcome, PartnerFailure) for outcome in outcomes) and not server.times, (
        "no call was made any more"
    )


async def test_a_long_pause_asked_for_is_waited_out(server: OpenAIServer) -> None:
    script(server, Step("status", status=429, message="Daily limit.", retry_after=0.6))
    partner = partner_of(server, turn_seconds=0.5)
    outcomes = await ask_many(partner, 1) + await ask_many(partner, 3)
    assert all(isinstance(outcome, Turn) for outcome in outcomes)
    assert server.times[1] - server.times[0] >= 0.6


async def test_a_short_pause_at_the_end_of_a_turn_is_no_outage(server: OpenAIServer) -> None:
    script(server, Step("hang"), Step("status", status=429, retry_after=0.3))
    partner = partner_of(server, turn_seconds=0.5, request_seconds=0.4)
    with pytest.raises(PartnerFailure, match=r"in 0.5 s"):
        await partner.act(VIEW)
    assert not partner.endpoint.breaker.is_open


async def test_a_cancelled_probe_lets_another_one_through(server: OpenAIServer) -> None:
    server.down = True
    partner = partner_of(server, failures=1, seconds=0.0)
    first = asyncio.create_task(partner.act(VIEW))
    await until(lambda: partner.endpoint.breaker.is_open)
    server.down = False
    script(server, Step("hang"))
    await until(lambda: server.requests)  # the probe hangs
    second = asyncio.create_task(partner.act(VIEW))
    first.cancel()
    assert (await second).text == ANSWER


def test_one_partner_serves_event_loops_in_sequence() -> None:
    """A trainer that calls asyncio.run for each step; nothing may be left open behind it."""

    async def step(partner: list[OpenAIPartner]) -> list[str]:
        async with OpenAIServer() as server:
            made = partner_config(server.url).openai
            if not partner:
                partner.append(OpenAIPartner(made))
            here = partner[0].endpoint
            here.url = server.url  # a fresh server each step: the old loop's is gone
            return [outcome.text for outcome in await ask_many(partner[0], 5) if isinstance(outcome, Turn)]

    partner: list[OpenAIPartner] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert asyncio.run(step(partner)) == [ANSWER] * 5
        gc.collect()
    assert partner[0].endpoint.spend.total.calls == 15
    assert not [str(w.message) for w in caught if "unclosed" in str(w.message).lower()]


async def test_a_key_is_sent_and_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-right")
    async with OpenAIServer(key="sk-right") as server:
        assert (await partner_of(server, api_key_env="MY_KEY").act(VIEW)).text == ANSWER
        monkeypatch.setenv("MY_KEY", "sk-wrong-and-secret")
        with pytest.raises(PartnerFailure, match=r"Incorrect API key provided: \*\*\*\.") as failure:
            await partner_of(server, api_key_env="MY_KEY").act(VIEW)
    assert "sk-wrong" not in repr(failure.value)


async def test_no_key_sends_no_authorization(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await partner_of(server).act(VIEW)
    assert "Authorization" not in server.headers[0]


async def test_basic_authorization_is_sent_and_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "bWU6cGFzcyB3b3Jk")
    async with OpenAIServer() as server:
        script(server, Step("status", status=400, message="{authorization}"))
        partner = partner_of(server, api_key_env="MY_KEY", headers={"Authorization": "Basic {key}"})
        with pytest.raises(PartnerFailure, match=r"HTTP 400: \*\*\* "):
            await partner.act(VIEW)
    assert server.headers[0]["Authorization"] == "Basic bWU6cGFzcyB3b3Jk"


def test_a_missing_key_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(
        ConfigError, match=r"^No key for https://api\.openai\.com/v1\. Set the environment variable OPENAI_API_KEY"
    ):
        OpenAIPartner(partner_config(None).openai)
    OpenAIPartner(partner_config("http://localhost:8000/v1").openai)


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "http:///v1", "https://host/v1?api-version=1", "http://me:pw@h/v1"]
)
def test_a_url_that_cannot_be_used_is_said(url: str) -> None:
    with pytest.raises(ValidationError, match="must be like http"):
        OpenAIPartner(partner_config(url).openai)


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ConfigError, match="no entry for 'qwen'"):
        OpenAIPartner(partner_config("http://localhost:8000/v1", model="qwen", budget_usd=1).openai)
