"""The endpoint in a run: retries, limits, outages, the account's faults, keys and addresses, refused parameters, event loops, Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from slim_rl.config import ChatPolicyConfig, OpenAIConfig, load_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.partners.openai_chat import ChatPolicy, OpenAIPartner
from tests.fakes.disk import largest_file
from tests.fakes.openai_server import HALF, OpenAIServer, Step, serving
from tests.partners.openai_setup import (
    ANSWER,
    QUESTION,
    VIEW,
    Asks,
    ask_many,
    partner_config,
    partner_of,
    play,
    recorded,
    script,
    until,
    view_after,
)
from tests.paths import ROOT

POISON = Step("status", status=500)
REVOKED = Step("status", status=401, code="invalid_api_key", message="The key was revoked.")
QUOTA = Step("status", status=429, code="insufficient_quota", message="You exceeded your quota.")
FORBIDDEN = Step("status", status=403, code="unsupported_country", message="Not here.")
REFUSES = ("max_tokens", "temperature", "top_p", "seed")


def replies(outcomes: list[Turn | BaseException]) -> int:
    assert all(isinstance(outcome, Turn | PartnerFailure) for outcome in outcomes)
    return sum(isinstance(outcome, Turn) for outcome in outcomes)


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level and "slim_rl" in record.name]


# --- retries and pauses


@pytest.mark.parametrize("step", [POISON, Step("cut"), Step("junk"), Step("hang")], ids=lambda step: step.kind)
async def test_tries_are_bounded(server: OpenAIServer, step: Step) -> None:
    script(server, *[step] * 10)
    patience = 2.0 if step.kind == "hang" else 5.0
    with pytest.raises(PartnerFailure, match=rf"No reply from {server.url} in 3 tries; the last one: ") as failure:
        await partner_of(server, max_retries=2, request_seconds=patience).act(VIEW)
    assert failure.value.reason is StopReason.PARTNER_FAILED
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    assert len(server.requests) == 3


PAUSES = {
    "retry-after": Step("status", status=429, retry_after=0.3),
    "ratelimit-reset": Step("status", status=429, headers={"x-ratelimit-reset-requests": "300ms"}),
    "body": Step("status", status=429, message="Please try again in 0.3s."),
}


@pytest.mark.parametrize("step", PAUSES.values(), ids=PAUSES)
async def test_pause_that_is_asked_for_is_waited(server: OpenAIServer, step: Step) -> None:
    script(server, step)
    await partner_of(server).act(VIEW)
    assert len(server.times) == 2 and server.times[1] - server.times[0] >= 0.3


@pytest.mark.parametrize("after", [None, 0.01])
async def test_short_pause_does_not_shorten_the_backoff(
    server: OpenAIServer, after: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(server, *[Step("status", status=503, retry_after=after)] * 4)
    monkeypatch.setattr("random.Random.uniform", lambda _, low, high: high)
    partner = partner_of(server)
    partner.endpoint.first_wait, partner.endpoint.longest_wait = 0.03, 1.0
    await partner.act(VIEW)
    assert server.times[-1] - server.times[0] >= 0.03 + 0.06 + 0.12 + 0.24


async def test_turn_has_a_deadline(server: OpenAIServer) -> None:
    script(server, *[Step("hang")] * 20)
    with pytest.raises(PartnerFailure, match=r"in 2 s; the last one: no answer within"):
        await partner_of(server, request_seconds=0.8, turn_seconds=2.0, max_retries=50).act(VIEW)
    assert 2 <= len(server.requests) <= 4
    script(server, *[Step("status", status=429, message="Slow down.")] * 500)
    with pytest.raises(PartnerFailure, match=r"No reply from .* in 0\.2 s; the last one: "):
        await partner_of(server, turn_seconds=0.2, max_retries=1).act(VIEW)


async def test_deadline_of_a_turn_fails_its_game_alone(server: OpenAIServer) -> None:
    server.meets = lambda body: Step("endless") if body["seed"] == 0 else None
    failure, *others = await ask_many(partner_of(server, max_retries=1, failures=2, seconds=0.0), 4)
    assert replies(others) == 3
    assert isinstance(failure, PartnerFailure) and failure.reason is StopReason.PARTNER_FAILED
    assert "longer than 2,000,000 bytes" in str(failure)


# --- limits


async def test_requests_in_flight_are_bounded(server: OpenAIServer) -> None:
    server.latency = 0.02
    assert replies(await ask_many(partner_of(server, concurrency=3), 20)) == 20
    assert server.busiest == 3


async def test_requests_and_tokens_per_minute_are_bounded(server: OpenAIServer) -> None:
    usage = (await partner_of(server).act(VIEW)).usage
    assert usage is not None
    tokens = 600 * (usage.input_tokens + usage.output_tokens)
    for limit, least in ({"requests_per_minute": 600}, 0.6), ({"tokens_per_minute": tokens}, 0.4):
        begun = time.monotonic()
        await ask_many(partner_of(server, **limit), 16)  # ten at once, then one every 0.1 s
        assert time.monotonic() - begun >= least


@pytest.mark.parametrize("kind", ["huge", "endless", "gzip", "deep"])
async def test_monstrous_answer_is_bounded(server: OpenAIServer, kind: str) -> None:
    script(
        server, *[Step(kind, size=3_000_000)] * 3
    )  # the server's own share of this process: it makes its bodies here
    before, longest = psutil.Process().memory_info().rss, 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    watcher = asyncio.create_task(watch())
    reply = await partner_of(server, max_retries=5).act(VIEW)
    watcher.cancel()
    assert reply.text == ANSWER and reply.usage is not None and reply.usage.retries == 3
    assert reply.usage.input_tokens > 3 * 500, "what was answered for nothing is paid for too"
    assert psutil.Process().memory_info().rss - before < 100 * 2**20
    assert longest < 1.0


MANY = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tests.partners.openai_setup import ask_many, partner_config
from slim_rl.games.matching.partners.chat import MatchingChatPartner

async def main():
    partner = MatchingChatPartner(partner_config(sys.argv[1], concurrency=320, cassette=sys.argv[2]).openai)
    replies = await ask_many(partner, 320)
    print(sum(not isinstance(reply, Exception) for reply in replies), *partner.endpoint.warned.values(), sep="\\n")

asyncio.run(main())
"""


def test_concurrency_fits_the_limit_of_open_files(tmp_path: Path) -> None:
    with serving(latency=0.2) as server:
        command = [sys.executable, "-c", MANY, server.url, str(tmp_path / "a.sqlite")]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        assert 30 < server.busiest < 200
    assert printed == ["320"]


# --- outages: of the endpoint, and of the account


@pytest.mark.parametrize("refusal", [None, REVOKED, QUOTA, FORBIDDEN], ids=["down", "401", "429", "403"])
async def test_outage_is_said_once_and_costs_no_game(
    server: OpenAIServer, refusal: Step | None, caplog: pytest.LogCaptureFixture
) -> None:
    partner = partner_of(server, failures=4, concurrency=8)
    assert (await partner.act(VIEW)).text == ANSWER
    server.refusal, server.down = refusal, refusal is None
    asked = asyncio.create_task(ask_many(partner, 50))
    await until(lambda: partner.endpoint.breaker.is_open)
    sent = len(server.times)
    await asyncio.sleep(0.4)
    probes = server.times[sent + 8 :]  # the others were in flight
    assert not asked.done()
    assert all(later - earlier >= 0.02 for earlier, later in itertools.pairwise(probes)), "one asks at a time"
    server.refusal, server.down = None, False
    assert [outcome.text for outcome in await asked if isinstance(outcome, Turn)] == [ANSWER] * 50
    first, second = logged(caplog)
    assert (f"HTTP {refusal.status}" if refusal else "failed") in first and "Calls wait for it" in first
    assert server.url in first and "answers again" in second


@pytest.mark.parametrize("refusal", [None, REVOKED], ids=["down", "401"])
async def test_outage_that_lasts_stops_the_run(
    server: OpenAIServer, refusal: Step | None, caplog: pytest.LogCaptureFixture
) -> None:
    partner = partner_of(server, failures=4, concurrency=8, outage_wait_minutes=0.5 / 60)
    await partner.act(VIEW)
    server.refusal, server.down = refusal, refusal is None
    outcomes = await ask_many(partner, 30)
    assert replies(outcomes) == 0 and partner.stopped is not None
    assert "has not answered" in partner.stopped and "resume the run" in partner.stopped
    assert refusal is None or "The key was revoked" in partner.stopped
    assert {str(outcome) for outcome in outcomes} == {partner.stopped}
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)} == {StopReason.OUTAGE}
    assert len(logged(caplog, logging.ERROR)) == 1
    server.refusal, server.down, sent = None, False, len(server.times)
    assert replies(await ask_many(partner, 30)) == 0 and len(server.times) == sent, "no call is made any more"


async def test_failed_probes_take_none_of_a_calls_tries(server: OpenAIServer) -> None:
    server.down = True
    partner = partner_of(server, failures=2, seconds=0.0, max_retries=2)
    asked = asyncio.create_task(ask_many(partner, 2))
    await until(lambda: partner.endpoint.breaker.is_open)
    await asyncio.sleep(0.3)
    server.down = False
    assert replies(await asked) == 2


async def test_cancelled_probe_lets_another_one_through(server: OpenAIServer) -> None:
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


async def test_long_pause_is_waited_out_and_a_short_one_is_no_outage(server: OpenAIServer) -> None:
    script(server, Step("status", status=429, message="Daily limit.", retry_after=0.6))
    partner = partner_of(server, turn_seconds=0.5)
    assert replies(await ask_many(partner, 1) + await ask_many(partner, 3)) == 4
    assert server.times[1] - server.times[0] >= 0.6
    script(server, Step("hang"), Step("status", status=429, retry_after=0.3))  # at the end of a turn
    partner = partner_of(server, turn_seconds=0.5, request_seconds=0.4)
    with pytest.raises(PartnerFailure, match=r"in 0.5 s"):
        await partner.act(VIEW)
    assert not partner.endpoint.breaker.is_open


@pytest.mark.parametrize("status", [429, 503])
async def test_endless_pause_is_looked_into(server: OpenAIServer, status: int) -> None:
    script(server, Step("status", status=status, retry_after=1e15))
    assert (await partner_of(server, outage_wait_minutes=1 / 60).act(VIEW)).text == ANSWER
    assert 0.5 <= server.times[1] - server.times[0] < 1.0, "half of the time there is was waited"


async def test_pause_that_ended_early_keeps_next_outage_short(server: OpenAIServer) -> None:
    partner = partner_of(server, failures=2, seconds=0.0, turn_seconds=1.0)
    slow = asyncio.create_task(ask_many(partner, 1))
    script(server, Step(seconds=0.3), Step("status", status=429, retry_after=3600))
    await until(lambda: len(server.requests) == 1)
    paused = asyncio.create_task(partner.act(view_after(QUESTION, seed=1)))
    await until(lambda: partner.endpoint.breaker.is_open)
    assert replies(await slow) == 1 and (await paused).text == ANSWER, "an answer in the meantime ends the pause"
    server.down = True
    asked = asyncio.create_task(ask_many(partner, 20))
    await until(lambda: partner.endpoint.breaker.is_open)
    await asyncio.sleep(0.3)
    server.down, begun = False, time.monotonic()
    assert replies(await asked) == 20 and time.monotonic() - begun < 2.0


# --- one game's own


async def test_half_a_character_in_a_reply_costs_nothing(server: OpenAIServer) -> None:
    script(server, *[Step(text=f"[no] tag {HALF}"), Step(text=f"[message] Hm {HALF}")] * 2)
    partner = partner_of(server, concurrency=1)
    for view in VIEW, view_after(QUESTION, f"[message] Hm {HALF}", f"[message] {HALF} And Ava Li on Electra?"):
        reply = await partner.act(view)
        assert reply.text == "[message] Hm \ufffd" and reply.usage is not None and reply.usage.retries == 0
    assert replies(await ask_many(partner, 20)) == 20


async def test_request_that_always_fails_stops_no_other_game(server: OpenAIServer) -> None:
    server.meets = lambda body: POISON if body["seed"] == 3 else None
    partner = partner_of(server, failures=3, seconds=0.0, concurrency=2)
    outcomes = await ask_many(partner, 20)
    assert replies(outcomes) == 19 and isinstance(outcomes[3], PartnerFailure)
    assert replies(await ask_many(partner, 4)) == 3
    with pytest.raises(PartnerFailure, match="in 9 tries; the last one: HTTP 500"):
        await partner.act(view_after(QUESTION, seed=3))
    assert partner.stopped is None and not partner.endpoint.breaker.is_open


async def test_failing_request_does_not_prolong_an_outage(server: OpenAIServer) -> None:
    partner = partner_of(server, failures=2, seconds=0.0, max_retries=3)
    await partner.act(VIEW)
    server.meets = lambda body: POISON if body["seed"] == 0 else None
    server.down = True
    asked = asyncio.create_task(ask_many(partner, 5))
    await until(lambda: partner.endpoint.breaker.is_open)
    server.down = False
    outcomes = await asyncio.wait_for(asked, 5)
    assert replies(outcomes) == 4 and isinstance(outcomes[0], PartnerFailure) and partner.stopped is None


async def test_error_of_our_own_is_not_the_endpoints(server: OpenAIServer) -> None:
    partner = partner_of(server, extra={"stop": {1, 2}}, failures=1, seconds=0.0)  # no JSON
    for seed in range(3):
        with pytest.raises(PartnerFailure, match=r"could not be made: an error in this program itself: TypeError"):
            await partner.act(view_after(QUESTION, seed=seed))
    assert partner.stopped is None and not partner.endpoint.breaker.is_open and not server.times


async def test_words_of_any_kind_can_be_sent(server: OpenAIServer) -> None:
    partner = OpenAIPartner(partner_config(server.url).openai)
    server.answer = lambda body: "fine"
    for text in (HALF, "\x00\x1b[31m", "<|im_end|>" * 1000, "\ud83d\ude00", "\u2028" * 50):
        view = View(0, text, text, (Utterance(1, text), Utterance(0, text, text), Utterance(1, text)), None, -1)
        assert (await partner.act(view)).text == "fine"


async def test_full_disk_stops_the_run_and_loses_no_game(
    server: OpenAIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partner = partner_of(server, cassette=tmp_path / "a.sqlite")
    with largest_file(0):
        assert (await partner.act(view_after(QUESTION, seed=0))).text == ANSWER, "what was paid for is played"
        assert partner.stopped is not None and "Make it writable and resume" in partner.stopped
    assert sum("Cannot append" in text for text in logged(caplog)) == 1
    await partner.act(view_after(QUESTION, seed=1))
    assert len(recorded(tmp_path / "a.sqlite")) == 1 and partner.stopped is None


# --- a model that refuses parameters


async def test_refused_parameters_are_learned_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    async with OpenAIServer(refuses=REFUSES) as server:
        partner = partner_of(server, top_p=0.9, concurrency=20)
        request = partner.identity["request"]
        assert (request["seed"], request["temperature"]) == ("dialogue", 0.0) and "refused" not in partner.identity
        assert replies(await ask_many(partner, 20)) == 20
        sent, before = server.requests[0], len(server.times)
        assert sent["max_completion_tokens"] == 300 and not sent.keys() & set(REFUSES)
        dialogue = await play(partner, Asks())
        assert len(server.times) - before == 4, "no call asks what is known"
    assert (partner.endpoint.spend.total.retries, partner.endpoint.spend.total.calls) == (0, 24)
    told = json.loads(json.dumps(dialogue.to_dict()))["partner"]
    assert told["request"] == {"model": server.model, "max_completion_tokens": 300, "seed": None}
    assert told["refused"] == sorted(REFUSES)
    assert logged(caplog) == [
        "gpt-4.1-2025-04-14 refuses max_tokens, which is sent as max_completion_tokens.",
        "gpt-4.1-2025-04-14 refuses temperature, which is left out: its replies may differ from run to run.",
        "gpt-4.1-2025-04-14 refuses top_p, which is left out.",
        "gpt-4.1-2025-04-14 refuses seed, which is left out: its replies may differ from run to run.",
    ]


async def test_what_the_model_takes_is_kept(server: OpenAIServer) -> None:
    await (partner := partner_of(server, temperature=1.0, reasoning_effort="minimal")).act(VIEW)
    server.refuses = REFUSES  # the model behind the name is another one now, which costs no game
    assert replies(await ask_many(partner, 10)) == 10
    first, later = server.requests[0], server.requests[-1]
    assert (first["temperature"], first["seed"], first["reasoning_effort"]) == (1.0, 7, "minimal")
    assert (later["temperature"], later["reasoning_effort"], "seed" in later) == (1.0, "minimal", False)
    assert "reasoning_effort" not in partner_of(server).endpoint.parameters()


async def test_refusal_of_an_unsent_parameter_ends_the_tries(server: OpenAIServer) -> None:
    server.refuses = ("max_tokens",)
    server.meets = lambda body: Step("status", status=400, param="max_tokens", message="Use 'max_completion_tokens'.")
    with pytest.raises(PartnerFailure, match="Use 'max_completion_tokens'"):
        await partner_of(server).act(VIEW)
    assert len(server.times) == 2


async def test_policy_records_refused_parameters_refusals_and_thoughts() -> None:
    message = {"content": None, "refusal": "I cannot.", "reasoning_content": "Hm."}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    async with OpenAIServer(refuses=REFUSES, script=[Step("status", status=200, body=body)]) as server:
        policy = ChatPolicy(ChatPolicyConfig(model=server.model, base_url=server.url))
        reply = await policy.act(view_after(seat=0))
    assert policy.identity["refused"] == ["max_tokens", "seed"], "the policy's temperature is 1, which all take"
    assert (reply.text, reply.thought) == ("", "Hm.\n\n(It refused: I cannot.)")


@pytest.mark.parametrize("model", ["gpt-5.4-mini-2026-03-17", "gpt-6-luna", "Qwen/Qwen3-32B"])
async def test_successor_setting_makes_a_working_partner(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's line of settings: its key, its price and its budget go together."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    guide = (ROOT / "docs" / "how-to" / "partners.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in guide if line.startswith(f"--set partner.openai.model={model} "))
    changes = shlex.split(line.replace("--set", ""))
    make_partner(load_config(ROOT / "configs" / "matching.yaml", changes))
    thinks = "gpt-" in model
    async with OpenAIServer(model=model, refuses=REFUSES[:3] if thinks else (), key="sk-test") as server:
        here = load_config(ROOT / "configs" / "matching.yaml", [*changes, f"partner.openai.base_url={server.url}"])
        partner = make_partner(here)
        assert partner is not None and here.partner.openai.model == model and (await partner.act(VIEW)).text == ANSWER
    (sent,) = server.requests
    expected = {"reasoning_effort": "none", "max_completion_tokens": 300}
    assert (expected if thinks else {"chat_template_kwargs": {"enable_thinking": False}}).items() <= sent.items()


@pytest.mark.parametrize(("named", "date"), [("2027-01-14", "2027-01-14"), (None, None), ("soon", None)])
async def test_end_of_a_model_is_the_endpoints_word(server: OpenAIServer, named: str | None, date: str | None) -> None:
    server.shutdown = named
    assert await partner_of(server).endpoint.shutdown_date() == date


# --- a prompt that is cut

USAGES: dict[str, tuple[int, int, bool]] = {  # tokens read, tokens cached, whether the prompt was cut
    "cut": (130, 0, True),
    "cut to next to nothing": (20, 0, True),
    "whole": (1300, 0, False),
    "without the cached": (130, 1170, False),
    "not told": (0, 0, False),
}


@pytest.mark.parametrize(("read", "cached", "cut"), USAGES.values(), ids=USAGES)
async def test_prompt_that_is_cut_is_warned_of_once(
    server: OpenAIServer, read: int, cached: int, cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    usage = {"prompt_tokens": read, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": cached}}
    server.meets = lambda body: Step(usage=usage)
    assert replies(await ask_many(partner_of(server), 5)) == 5
    assert sum("cuts prompts without saying so" in text for text in logged(caplog)) == cut


# --- keys and addresses


async def test_key_is_sent_and_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-right")
    async with OpenAIServer(key="sk-right") as server:
        assert (await partner_of(server, api_key_env="MY_KEY").act(VIEW)).text == ANSWER
        monkeypatch.setenv("MY_KEY", "sk-wrong-and-secret")
        with pytest.raises(PartnerFailure, match=r"Incorrect API key provided: \*\*\*\.") as failure:
            await partner_of(server, api_key_env="MY_KEY").act(VIEW)
    assert "sk-wrong" not in repr(failure.value)


async def test_headers_and_query_are_sent(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await partner_of(server).act(VIEW)
    assert "Authorization" not in server.headers[0], "no key sends none"
    monkeypatch.setenv("OPENAI_API_KEY", "bWU6cGFzcyB3b3Jk")
    headers = {"Authorization": "Basic {key}", "api-key": "{key}", "X-Team": "one"}
    partner = partner_of(server, headers=headers, query={"api-version": "2024-10-21"})
    script(server, POISON, Step("status", status=400, message="{authorization}"))
    with pytest.raises(PartnerFailure, match=r"HTTP 400: \*\*\* "):
        await partner.act(VIEW)
    sent = {name.lower(): value for name, value in server.headers[-1].items()}
    assert sent["authorization"] == "Basic bWU6cGFzcyB3b3Jk" and (sent["api-key"], sent["x-team"]) == (
        sent["authorization"][6:],
        "one",
    )
    assert server.queries[1:] == ["api-version=2024-10-21"] * 2 and "bWU6" not in json.dumps(partner.identity)


def test_missing_key_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sentence = r"^No key for https://api\.openai\.com/v1\. Set the environment variable OPENAI_API_KEY"
    with pytest.raises(ConfigError, match=sentence):
        OpenAIPartner(partner_config(None).openai)
    OpenAIPartner(partner_config("http://localhost:8000/v1").openai)


@pytest.mark.parametrize(
    "key", ["sk-two words", "sk-line\nbreak", "sk-\u00fcml\u00e4ut", "sk-\x07bell", "\ufeffsk-mark"]
)
def test_malformed_key_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match=r"^The key in \$OPENAI_API_KEY holds a space.*Copy it again\.$") as failure:
        OpenAIPartner(partner_config("http://localhost:1/v1").openai)
    assert key not in str(failure.value)


URLS = [
    "localhost:8000/v1",
    "http:///v1",
    "https://host/v1?api-version=1",
    "http://me:pw@h/v1",
    "http://localhost:99999/v1",
    "http://localhost:x/v1",
    "http://[1/v1",
]
SETTINGS = ["model", "max_completion_tokens", "seed", "n", "stream", "messages", "tools", "service_tier", "api_key"]
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"base_url": url}, "must be like http") for url in (*URLS, f"http://{'a' * 70}.org/v1")),
    *(
        ({"headers": headers}, "cannot be sent: remove or correct it")
        for headers in ({"content-length": "3"}, {"X-A": "a\nb"}, {"X A": "b"}, {"": "b"})
    ),
    *(({"extra": {key: 4}}, f"{key} cannot be sent: it has a setting") for key in SETTINGS),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED, ids=lambda value: str(value)[:40])
def test_setting_that_cannot_be_sent_is_refused(settings: dict[str, Any], sentence: str) -> None:
    for section in (OpenAIConfig, ChatPolicyConfig):
        with pytest.raises(ValidationError, match=sentence):
            section(**settings)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://no-such-host.invalid/v1", "its address is not known"),
        ("https://127.0.0.1:{port}/v1", "no secure connection"),
    ],
)
async def test_wrong_address_stops_the_run_at_once(
    server: OpenAIServer, url: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = url.replace("{port}", server.url.rpartition(":")[2].removesuffix("/v1"))
    partner, begun = MatchingChatPartner(partner_config(url, concurrency=1).openai), time.monotonic()
    outcomes = await ask_many(partner, 5)
    assert replies(outcomes) == 0 and time.monotonic() - begun < 5
    assert sentence in str(outcomes[-1]) and "is partner.openai.base_url right?" in str(outcomes[-1])
    assert len(logged(caplog, logging.ERROR)) == 1


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_server_on_loopback_is_reached_without_a_proxy(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    for host in ("127.0.0.1", "localhost"):
        partner = OpenAIPartner(partner_config(server.url.replace("127.0.0.1", host), max_retries=0).openai)
        assert (await partner.act(VIEW)).text == ANSWER


async def test_another_server_is_reached_by_the_proxy(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1")
    partner = OpenAIPartner(partner_config("http://partner.invalid/v1", max_retries=0).openai)
    assert (await partner.act(VIEW)).text == ANSWER


# --- the process


def test_one_partner_serves_event_loops_in_sequence() -> None:
    """A trainer that calls asyncio.run for each step; nothing may be left open behind it."""
    partner = OpenAIPartner(partner_config("http://127.0.0.1:1/v1").openai)

    async def step() -> int:
        async with OpenAIServer() as server:
            partner.endpoint.url = server.url  # a fresh server each step: the old loop's is gone
            return replies(await ask_many(partner, 5))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [asyncio.run(step()) for _ in range(3)] == [5] * 3
        gc.collect()
    assert partner.endpoint.spend.total.calls == 15
    assert not [str(w.message) for w in caught if "unclosed" in str(w.message).lower()]


def test_interrupted_run_is_whole_and_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from benchmarks import soak_partner

    log = tmp_path / "dialogues.jsonl"
    command = f"soak_partner.py --dialogues 16 --concurrency 4 --fault-rate 0 --out {tmp_path} --latency".split()
    with subprocess.Popen(
        [sys.executable, ROOT / "benchmarks" / command[0], *command[1:], "0.4"],  # so long that it is not over yet
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENAI_API_KEY": ""},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a background job's children ignore
    ) as first:
        while first.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.02)
        first.send_signal(signal.SIGINT)
        _, complaint = first.communicate(timeout=100)
    assert first.returncode == 130 and "Traceback" not in complaint, complaint
    assert complaint.splitlines()[-1] == "Interrupted. The log is complete; run the same command to continue."
    before = log.read_bytes()
    assert before.endswith(b"\n") and 0 < before.count(b"\n") < 16
    monkeypatch.setattr(sys, "argv", [*command, "0.02"])
    assert soak_partner.main() == 0 and "16 of 16" in capsys.readouterr().out
    after = log.read_bytes()
    assert after.startswith(before), "what was done is not done again"
    assert {json.loads(line)["id"] for line in after.splitlines()} == {f"soak-{number}" for number in range(16)}
    assert after.count(b"\n") == 16
