"""Faults that must stay where they belong: one game's own, the program's own, the account's, and those of a wrong configuration; and Ctrl-C."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import asyncio
import email.utils
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.partners.answers import LONGEST_PAUSE, PAUSE_HEADERS, REPLY_CHARS, retry_after
from slim_rl.partners.openai_chat import OpenAIPartner
from tests.fakes.disk import largest_file
from tests.fakes.openai_server import HALF, OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    QUESTION,
    VIEW,
    ask_many,
    partner_config,
    partner_of,
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


def replies(outcomes: list[Turn | BaseException]) -> int:
    unexpected = [outcome for outcome in outcomes if not isinstance(outcome, Turn | PartnerFailure)]
    assert not unexpected
    return sum(isinstance(outcome, Turn) for outcome in outcomes)


# --- one game's own


async def test_half_a_character_in_a_reply_costs_nothing(server: OpenAIServer) -> None:
    server.script.extend([Step(text=f"[no] tag {HALF}"), Step(text=f"[message] Hm {HALF}")] * 2)  # type: ignore[attr-defined]
    partner = partner_of(server, concurrency=1)
    first = await partner.act(view_after(QUESTION))
    assert first.text == "[message] Hm \ufffd" and first.usage is not None and first.usage.retries == 0
    later = view_after(QUESTION, f"[message] Hm {HALF}", f"[message] {HALF} And Ava Li on Electra?")
    assert (await partner.act(later)).text == "[message] Hm \ufffd"
    assert replies(await ask_many(partner, 20)) == 20


async def test_a_request_that_always_fails_stops_no_other_game(server: OpenAIServer) -> None:
    server.meets = lambda body: POISON if body["seed"] == 3 else None
    partner = partner_of(server, failures=3, seconds=0.0, concurrency=2)
    outcomes = await ask_many(partner, 20)
    assert replies(outcomes) == 19 and isinstance(outcomes[3], PartnerFailure)
    alone = await ask_many(partner, 4)
    assert replies(alone) == 3
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
    assert replies(outcomes) == 4 and isinstance(outcomes[0], PartnerFailure)
    assert partner.stopped is None


async def test_an_error_of_our_own_is_not_the_endpoints(server: OpenAIServer) -> None:
    partner = partner_of(server, extra={"stop": {1, 2}}, failures=1, seconds=0.0)  # no JSON
    for seed in range(3):
        with pytest.raises(PartnerFailure, match=r"could not be made: an error in this program itself: TypeError"):
            await partner.act(view_after(QUESTION, seed=seed))
    assert partner.stopped is None and not partner.endpoint.breaker.is_open and not server.times


# --- the account's


@pytest.mark.parametrize("refusal", [REVOKED, QUOTA, FORBIDDEN], ids=lambda step: str(step.status))
async def test_an_account_refused_in_mid_run_costs_no_game(
    server: OpenAIServer, refusal: Step, caplog: pytest.LogCaptureFixture
) -> None:
    partner = partner_of(server, failures=4, concurrency=8)
    await partner.act(VIEW)
    server.refusal = refusal
    asked = asyncio.create_task(ask_many(partner, 50))
    await until(lambda: partner.endpoint.breaker.is_open)
    sent = len(server.times)
    await asyncio.sleep(0.4)
    assert not asked.done()
    assert len(server.times) - sent < 25, "only a probe at a time asks while it lasts"
    server.refusal = None
    assert replies(await asked) == 50
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "Calls wait for it" in said[0] and f"HTTP {refusal.status}" in said[0]


async def test_refused_account_stops_the_run(server: OpenAIServer) -> None:
    partner = partner_of(server, concurrency=4, outage_wait_minutes=0.5 / 60)
    await partner.act(VIEW)
    server.refusal = REVOKED
    outcomes = await ask_many(partner, 30)
    assert replies(outcomes) == 0 and partner.stopped is not None
    assert {str(outcome) for outcome in outcomes} == {partner.stopped} and "The key was revoked" in partner.stopped
    sent = len(server.times)
    assert replies(await ask_many(partner, 30)) == 0 and len(server.times) == sent


# --- pauses


async def test_pause_that_ended_early_keeps_next_outage_short(server: OpenAIServer) -> None:
    partner = partner_of(server, failures=2, seconds=0.0, turn_seconds=1.0)
    slow = asyncio.create_task(ask_many(partner, 1))
    server.script.extend([Step(seconds=0.3), Step("status", status=429, retry_after=3600)])  # type: ignore[attr-defined]
    await until(lambda: len(server.requests) == 1)
    paused = asyncio.create_task(partner.act(view_after(QUESTION, seed=1)))
    await until(lambda: partner.endpoint.breaker.is_open)
    assert replies(await slow) == 1 and (await paused).text == ANSWER, "an answer in the meantime ends the pause"
    server.down = True
    asked = asyncio.create_task(ask_many(partner, 20))
    await until(lambda: partner.endpoint.breaker.is_open)
    await asyncio.sleep(0.3)
    server.down = False
    begun = time.monotonic()
    assert replies(await asked) == 20
    assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize("status", [429, 503])
async def test_an_endless_pause_is_looked_into(server: OpenAIServer, status: int) -> None:
    script(server, Step("status", status=status, retry_after=1e15))
    partner = partner_of(server, outage_wait_minutes=1 / 60)
    begun = time.monotonic()
    assert (await partner.act(VIEW)).text == ANSWER
    assert 0.5 <= time.monotonic() - begun < 1.0, "half of the time there is was waited"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        ("-5", 0.0),
        ("1e400", None),
        ("nan", None),
        ("1e300", LONGEST_PAUSE),
        ("soon", None),
        ("", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 99 Foo 2020 99:99:99 +9999999", None),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST_PAUSE),
        ("9" * 5000, LONGEST_PAUSE),
    ],
)
async def test_a_pause_out_of_range(server: OpenAIServer, value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) in (seconds, None if seconds == 0.0 else seconds)
    if seconds is None or seconds == 0.0:
        script(server, Step("status", status=429, retry_after=value))
        assert (await partner_of(server).act(VIEW)).text == ANSWER


def test_a_pause_may_be_a_date() -> None:
    found = retry_after({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)})
    assert found is not None and 98 < found <= 100
    assert retry_after({"retry-after": "1", "retry-after-ms": "250"}) == 0.25
    assert retry_after({}) is None


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("retry-after", "{0}", 90),
        ("x-ratelimit-reset", "{0}", 90),
        ("x-ratelimit-reset", "{0}000", 90),
        ("x-ratelimit-reset-tokens", "6m0s", 360),
        ("retry-after", "6m0s", 360),
        ("anthropic-ratelimit-tokens-reset", "{0}", 90),
        ("ratelimit-reset", "50", 50),
        ("", '{{"metadata": {{"headers": {{"X-RateLimit-Reset": "{0}000"}}}}}}', 90),
    ],
)
def test_a_pause_may_end_at_a_point_in_time(name: str, value: str, seconds: float) -> None:
    value = value.format(int(time.time()) + 90)
    assert not name or PAUSE_HEADERS.search(name), "the client keeps it"
    found = retry_after({name: value}) if name else retry_after({}, value)
    assert found is not None and seconds - 3 < found <= seconds


@pytest.mark.parametrize(
    ("content", "seconds"),
    [
        ("Rate limit of requests per day reached. Please try again in 7m12s.", 432.0),
        ('{"error": {"code": 429, "details": [{"@type": "RetryInfo", "retryDelay": "34s"}]}}', 34.0),
        ('{"error": "busy", "retry_after_ms": 1500}', 1.5),
        ('{"detail": {"retryAfterSeconds": 20, "limit": 6000}}', 20.0),
        ("Please wait 2 minutes and 5 seconds before the next call.", 125.0),
        ("The limit of 6000 resets in 1.5h", 5400.0),
        ("Too many requests. Come back in 7 minutes and 12 seconds.", 432.0),
        ('{"error": "Model m is currently loading", "estimated_time": 20.0}', 20.0),
        ("It resets at 2199-01-01 00:00:00 UTC.", LONGEST_PAUSE),
        ("Limit reached, which resets at 2019-01-01T00:00:00Z.", 0.0),
        ("It resets at 2199-01-01T00:00:00+01:00.", LONGEST_PAUSE),
        ("Retry it 3 times, or ask for a limit above 60 requests per minute.", None),
    ],
)
def test_a_pause_may_be_in_the_body(content: str, seconds: float | None) -> None:
    assert retry_after({}, content) == seconds


# --- a wrong configuration


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://no-such-host.invalid/v1", r"its address is not known .*is partner\.openai\.base_url right\?"),
        ("https://127.0.0.1:{port}/v1", r"no secure connection .*is partner\.openai\.base_url right\?"),
    ],
)
async def test_a_wrong_address_stops_the_run_at_once(
    server: OpenAIServer, url: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = server.url.rpartition(":")[2].removesuffix("/v1")
    partner = MatchingChatPartner(partner_config(url.replace("{port}", port), concurrency=1).openai)
    begun = time.monotonic()
    outcomes = await ask_many(partner, 5)
    assert replies(outcomes) == 0 and time.monotonic() - begun < 5
    with pytest.raises(PartnerFailure, match=sentence):
        await partner.act(VIEW)
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


@pytest.mark.parametrize(
    "key", ["sk-two words", "sk-line\nbreak", "sk-\u00fcml\u00e4ut", "sk-\x07bell", "\ufeffsk-mark"]
)
def test_a_malformed_key_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match=r"^The key in \$OPENAI_API_KEY holds a space.*Copy it again\.$") as failure:
        OpenAIPartner(partner_config("http://localhost:1/v1").openai)
    assert key not in str(failure.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:99999/v1", "http://localhost:x/v1", f"http://{'a' * 70}.org/v1", "http://[1/v1"]
)
def test_an_impossible_address_is_said(url: str) -> None:
    with pytest.raises(ValidationError, match="must be like http"):
        OpenAIPartner(partner_config(url).openai)


async def test_a_redirect_is_not_followed(server: OpenAIServer) -> None:
    script(server, Step("status", status=308, message="Elsewhere."))
    with pytest.raises(PartnerFailure, match=r"HTTP 308.*answers from another address"):
        await partner_of(server).act(VIEW)


# --- whatever it sends


@pytest.mark.parametrize("kind", ["huge", "endless", "gzip", "deep"])
async def test_a_monstrous_answer_is_bounded(server: OpenAIServer, kind: str) -> None:
    import psutil

    server.script.extend([Step(kind)] * 3)  # type: ignore[attr-defined]
    partner = partner_of(server, max_retries=5)
    before, longest, last = psutil.Process().memory_info().rss, 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    if kind in ("huge", "gzip"):  # the server's own share of this process: it makes its bodies here
        server.script.clear()  # type: ignore[attr-defined]
        server.script.extend([Step(kind, size=3_000_000)] * 3)  # type: ignore[attr-defined]
    watcher = asyncio.create_task(watch())
    reply = await partner.act(VIEW)
    watcher.cancel()
    assert reply.text == ANSWER and reply.usage is not None and reply.usage.retries == 3
    assert reply.usage.input_tokens > 3 * 500, "what was answered for nothing is paid for too"
    assert psutil.Process().memory_info().rss - before < 100 * 2**20
    assert longest < 1.0


async def test_a_long_reply_counts_as_cut_off(server: OpenAIServer) -> None:
    script(server, Step(text="[message] " + "so " * 300_000))
    reply = await partner_of(server).act(VIEW)
    assert reply.text == ANSWER and reply.usage is not None and reply.usage.malformed == 1
    last = server.requests[1]["messages"]
    assert "too long" in last[-1]["content"] and len(last[-2]["content"]) <= REPLY_CHARS


async def test_a_long_error_is_bounded(server: OpenAIServer) -> None:
    script(server, Step("status", status=400, code="context_length_exceeded", message="x" * 1_500_000))
    with pytest.raises(PartnerFailure) as failure:
        await partner_of(server).act(VIEW)
    assert len(str(failure.value)) < 1000


@pytest.mark.parametrize("code", [7, ["a"], {"b": 1}, None, "x" * 10_000])
async def test_an_error_of_any_shape_is_a_failure(server: OpenAIServer, code: Any) -> None:
    server.answer = lambda body: "[message] fine"
    await partner_of(server).act(VIEW)
    script(server, Step("status", status=418, code=code, message="{authorization}"))
    with pytest.raises(PartnerFailure, match="HTTP 418"):
        await partner_of(server).act(VIEW)


async def test_words_of_any_kind_can_be_sent(server: OpenAIServer) -> None:
    partner = OpenAIPartner(partner_config(server.url).openai)
    server.answer = lambda body: "fine"
    for text in (HALF, "\x00\x1b[31m", "<|im_end|>" * 1000, "\ud83d\ude00", "\u2028" * 50):
        view = View(0, text, text, (Utterance(1, text), Utterance(0, text, text), Utterance(1, text)), None, -1)
        assert (await partner.act(view)).text == "fine"


async def test_a_deadline_of_the_turn_is_a_failure_of_the_game_alone(server: OpenAIServer) -> None:
    server.meets = lambda body: Step("endless") if body["seed"] == 0 else None
    outcomes = await ask_many(partner_of(server, max_retries=1, failures=2, seconds=0.0), 4)
    assert replies(outcomes) == 3
    failure = outcomes[0]
    assert isinstance(failure, PartnerFailure) and failure.reason is StopReason.PARTNER_FAILED
    assert "longer than 2,000,000 bytes" in str(failure)


async def test_a_full_disk_stops_the_run_and_loses_no_game(
    server: OpenAIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.sqlite"
    partner = partner_of(server, cassette=path)
    with largest_file(0):
        assert (await partner.act(view_after(QUESTION, seed=0))).text == ANSWER, "what was paid for is played"
        assert partner.stopped is not None and "Make it writable and resume" in partner.stopped
    assert len([record for record in caplog.records if "Cannot append" in record.getMessage()]) == 1
    await partner.act(view_after(QUESTION, seed=1))
    assert len(recorded(path)) == 1 and partner.stopped is None


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"detail": "No\\nseed here, {authorization}"}', "HTTP 400: No seed here, Bearer ***"),
        (422, '{"error": "Too many messages."}', "HTTP 422: Too many messages."),
        (
            422,
            '{"detail": [{"loc": ["body", "n"], "msg": "wrong"}]}',
            'HTTP 422: {"detail": [{"loc": ["body", "n"], "msg": "wrong"}]}',
        ),
        (400, "No such\n  thing.", "HTTP 400: No such thing."),
        (400, "", "HTTP 400: no reason is given"),
    ],
)
async def test_the_servers_reason_is_told_whatever_its_form(
    server: OpenAIServer, status: int, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_KEY", "sk-secret-1")
    script(server, Step("status", status=status, body=body))
    with pytest.raises(PartnerFailure) as failure:
        await partner_of(server, api_key_env="FAULTS_KEY", outage_wait_minutes=0.0).act(VIEW)
    assert said in str(failure.value) and "sk-secret" not in str(failure.value)


def soak(out: Path, latency: float = 0.05) -> subprocess.Popen[str]:
    command = [sys.executable, "benchmarks/soak_partner.py", "--dialogues", "60", "--concurrency", "8"]
    return subprocess.Popen(
        [*command, "--latency", str(latency), "--fault-rate", "0", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENAI_API_KEY": ""},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a background job's children ignore it otherwise
    )


def test_an_interrupted_run_is_whole_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "dialogues.jsonl"
    first = soak(tmp_path, latency=0.4)  # so long that it is not over before it is interrupted, on any machine
    while first.poll() is None and (not log.exists() or log.stat().st_size < 20_000):
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, complaint = first.communicate(timeout=100)
    assert first.returncode == 130 and "Traceback" not in complaint, complaint
    assert complaint.splitlines()[-1] == "Interrupted. The log is complete; run the same command to continue."
    lines = log.read_text().splitlines(keepends=True)
    assert 0 < len(lines) < 60 and all(line.endswith("\n") for line in lines)
    before = [json.loads(line) for line in lines]
    second = soak(tmp_path)
    table, complaint = second.communicate(timeout=200)
    assert second.returncode == 0, complaint
    after = [json.loads(line) for line in log.read_text().splitlines()]
    assert after[: len(before)] == before, "what was done is not done again"
    assert sorted(one["id"] for one in after) == sorted(f"soak-{number}" for number in range(60))
    assert "60 of 60" in table
