"""The endpoint in a run: retries, limits, outages, the account's faults, keys and addresses, refused parameters, event loops."""

import asyncio
import gc
import itertools
import json
import logging
import shlex
import time
import warnings

import psutil
import pytest

from slim_rl.config import ChatPolicyConfig, load_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.partners.openai_chat import ChatPolicy, OpenAIPartner
from tests.fakes.disk import largest_file
from tests.fakes.openai_server import HALF, OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    QUESTION,
    VIEW,
    ask_many,
    asks,
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
BUSY = Step("status", status=429)
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
async def test_tries_are_bounded(server, step) -> None:
    script(server, *[step] * 10)
    partner = partner_of(server, max_retries=2, request_seconds=0.5 if step.kind == "hang" else 5.0)
    with pytest.raises(PartnerFailure, match=rf"No reply from {server.url} in 3 tries; the last one: ") as failure:
        await partner.act(VIEW)
    assert failure.value.reason is StopReason.PARTNER_FAILED and len(server.requests) == 3
    assert failure.value.__cause__ is None and failure.value.__context__ is None


@pytest.mark.parametrize(("after", "least"), [(None, 0.45), (0.01, 0.45), (0.15, 0.7)])
async def test_pause_is_waited_and_never_shortens_the_backoff(server, after, least, monkeypatch) -> None:
    script(server, *[Step("status", status=503, retry_after=after)] * 4)
    monkeypatch.setattr("random.Random.uniform", lambda _, low, high: high)
    partner = partner_of(server)
    partner.endpoint.first_wait, partner.endpoint.longest_wait = 0.03, 1.0
    await partner.act(VIEW)
    assert server.times[-1] - server.times[0] >= least


DEADLINES = [(Step("hang"), 1.0, "no answer within", range(2, 5)), (BUSY, 0.8, "HTTP 429", range(5, 999))]


@pytest.mark.parametrize(("step", "seconds", "why", "tries"), DEADLINES, ids=["hang", "429"])
async def test_turn_has_a_deadline(server, step, seconds, why, tries) -> None:
    server.meets = lambda body: step
    with pytest.raises(PartnerFailure, match=rf"No reply from .* in {seconds:g} s; the last one: {why}"):
        await partner_of(server, request_seconds=0.4, turn_seconds=seconds, max_retries=3).act(VIEW)
    assert len(server.requests) in tries, "an endpoint that asks to wait gets the whole turn"


# --- limits


async def test_requests_in_flight_are_bounded(server, monkeypatch) -> None:
    server.latency, files = 0.02, psutil.Process().num_fds()
    assert replies(await ask_many(partner_of(server, concurrency=3), 20)) == 20 and server.busiest == 3
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    assert replies(await ask_many(partner_of(server, concurrency=320), 320)) == 320
    assert 30 < server.busiest <= 128 and psutil.Process().num_fds() - files <= 256, "half of the files are its own"


async def test_requests_and_tokens_per_minute_are_bounded(server) -> None:
    usage = (await partner_of(server).act(VIEW)).usage
    tokens = 600 * (usage.input_tokens + usage.output_tokens)
    for limit, least in ({"requests_per_minute": 600}, 0.6), ({"tokens_per_minute": tokens}, 0.4):
        begun = time.monotonic()
        await ask_many(partner_of(server, **limit), 16)  # ten at once, then one every 0.1 s
        assert time.monotonic() - begun >= least


async def test_monstrous_answers_are_bounded(server) -> None:
    script(server, *[Step(kind, size=3_000_000) for kind in ("huge", "endless", "gzip", "deep")])
    before, lags = psutil.Process().memory_info().rss, [0.0]

    async def watch() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.005)
            lags.append(time.monotonic() - begun)

    watcher = asyncio.create_task(watch())
    reply = await partner_of(server, max_retries=5).act(VIEW)
    watcher.cancel()
    assert reply.text == ANSWER and reply.usage.retries == 4
    assert reply.usage.input_tokens > 4 * 500, "what was answered for nothing is paid for too"
    assert psutil.Process().memory_info().rss - before < 100 * 2**20, "the server's own share included"
    assert max(lags) < 1.0


# --- outages: of the endpoint, and of the account


@pytest.mark.parametrize("refusal", [None, REVOKED, QUOTA, FORBIDDEN], ids=["down", "401", "429", "403"])
async def test_outage_is_said_once_and_costs_no_game(server, refusal, caplog) -> None:
    partner = partner_of(server, failures=4, seconds=0.0, concurrency=4, max_retries=2)
    assert (await partner.act(VIEW)).text == ANSWER
    server.refusal, server.down = refusal, refusal is None
    asked = asyncio.create_task(ask_many(partner, 50))
    await until(lambda: partner.endpoint.breaker.is_open)
    sent = len(server.times)
    await asyncio.sleep(0.4)  # more probes than the calls have tries
    probes = server.times[sent + 4 :]  # the others were in flight
    assert not asked.done()
    assert all(later - earlier >= 0.02 for earlier, later in itertools.pairwise(probes)), "one asks at a time"
    server.refusal, server.down = None, False
    assert [outcome.text for outcome in await asked if isinstance(outcome, Turn)] == [ANSWER] * 50
    first, second = logged(caplog)
    assert (f"HTTP {refusal.status}" if refusal else "failed") in first and "Calls wait for it" in first
    assert server.url in first and "answers again" in second


@pytest.mark.parametrize("refusal", [None, REVOKED], ids=["down", "401"])
async def test_outage_that_lasts_stops_the_run(server, refusal, caplog) -> None:
    partner = partner_of(server, failures=4, concurrency=8, outage_wait_minutes=0.5 / 60)
    await partner.act(VIEW)
    server.refusal, server.down = refusal, refusal is None
    outcomes = await ask_many(partner, 30)
    assert replies(outcomes) == 0 and "has not answered" in partner.stopped and "resume the run" in partner.stopped
    assert refusal is None or "The key was revoked" in partner.stopped
    assert {(str(outcome), outcome.reason) for outcome in outcomes} == {(partner.stopped, StopReason.OUTAGE)}
    assert len(logged(caplog, logging.ERROR)) == 1
    server.refusal, server.down, sent = None, False, len(server.times)
    assert replies(await ask_many(partner, 30)) == 0 and len(server.times) == sent, "no call is made any more"


async def test_cancelled_probe_lets_another_one_through(server) -> None:
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


@pytest.mark.parametrize("status", [429, 503])
async def test_long_pause_is_waited_out_and_a_short_one_is_no_outage(server, status) -> None:
    script(server, Step("status", status=status, message="Daily limit.", retry_after=0.6))
    partner = partner_of(server, turn_seconds=0.5)
    assert replies(await ask_many(partner, 1) + await ask_many(partner, 3)) == 4
    assert server.times[1] - server.times[0] >= 0.6
    script(server, Step("hang"), Step("status", status=status, retry_after=0.3))  # at the end of a turn
    partner = partner_of(server, turn_seconds=0.5, request_seconds=0.4)
    with pytest.raises(PartnerFailure, match=r"in 0.5 s"):
        await partner.act(VIEW)
    assert not partner.endpoint.breaker.is_open


# --- one game's own


@pytest.mark.parametrize(("step", "why"), [(POISON, "HTTP 500"), (Step("endless"), "the answer is longer than 2,000")])
async def test_request_that_always_fails_stops_no_other_game(server, step, why) -> None:
    server.meets = lambda body: step if body["seed"] == 3 else None
    partner = partner_of(server, failures=3, seconds=0.0, concurrency=2)
    outcomes = await ask_many(partner, 20)
    assert replies(outcomes) == 19 and outcomes[3].reason is StopReason.PARTNER_FAILED
    assert f"in 9 tries; the last one: {why}" in str(outcomes[3])
    assert replies(await ask_many(partner, 4)) == 3
    assert partner.stopped is None and not partner.endpoint.breaker.is_open


async def test_failing_request_does_not_prolong_an_outage(server) -> None:
    partner = partner_of(server, failures=2, seconds=0.0, max_retries=3)
    await partner.act(VIEW)
    server.meets = lambda body: POISON if body["seed"] == 0 else None
    server.down = True
    asked = asyncio.create_task(ask_many(partner, 5))
    await until(lambda: partner.endpoint.breaker.is_open)
    server.down = False
    outcomes = await asyncio.wait_for(asked, 5)
    assert replies(outcomes) == 4 and isinstance(outcomes[0], PartnerFailure) and partner.stopped is None


async def test_error_of_our_own_is_not_the_endpoints(server) -> None:
    partner = partner_of(server, extra={"stop": {1, 2}}, failures=1, seconds=0.0)  # no JSON
    for failure in await ask_many(partner, 3):
        assert "could not be made: an error in this program itself: TypeError" in str(failure)
    assert partner.stopped is None and not partner.endpoint.breaker.is_open and not server.times


async def test_words_of_any_kind_can_be_sent(server) -> None:
    partner = OpenAIPartner(partner_config(server.url).openai)
    server.answer = lambda body: "fine"
    for text in (HALF, "\x00\x1b[31m", "<|im_end|>" * 1000, "\ud83d\ude00", "\u2028" * 50):
        view = View(0, text, text, (Utterance(1, text), Utterance(0, text, text), Utterance(1, text)), None, -1)
        assert (await partner.act(view)).text == "fine"


async def test_full_disk_stops_the_run_and_loses_no_game(server, tmp_path, caplog) -> None:
    partner = partner_of(server, cassette=tmp_path / "a.sqlite")
    with largest_file(0):
        assert (await partner.act(view_after(QUESTION, seed=0))).text == ANSWER, "what was paid for is played"
        assert "Make it writable and resume" in partner.stopped
    assert sum("Cannot append" in text for text in logged(caplog)) == 1
    await partner.act(view_after(QUESTION, seed=1))
    assert len(recorded(tmp_path / "a.sqlite")) == 1 and partner.stopped is None


# --- a model that refuses parameters


async def test_refused_parameters_are_learned_once_and_kept(server, caplog) -> None:
    server.refuses = REFUSES
    partner = partner_of(server, top_p=0.9, concurrency=20)
    request = partner.identity["request"]
    assert (request["seed"], request["temperature"]) == ("dialogue", 0.0) and "refused" not in partner.identity
    assert replies(await ask_many(partner, 20)) == 20
    sent, before = server.requests[0], len(server.times)
    assert sent["max_completion_tokens"] == 300 and not sent.keys() & set(REFUSES)
    identity = json.loads(json.dumps((await play(asks(), partner)).to_dict()))["partner"]
    assert len(server.times) - before == 4, "no call asks what is known"
    assert (partner.endpoint.spend.total.retries, partner.endpoint.spend.total.calls) == (0, 24)
    assert identity["request"] == {"model": server.model, "max_completion_tokens": 300, "seed": None}
    assert identity["refused"] == sorted(REFUSES)
    assert logged(caplog) == [
        "gpt-4.1-2025-04-14 refuses max_tokens, which is sent as max_completion_tokens.",
        "gpt-4.1-2025-04-14 refuses temperature, which is left out: its replies may differ from run to run.",
        "gpt-4.1-2025-04-14 refuses top_p, which is left out.",
        "gpt-4.1-2025-04-14 refuses seed, which is left out: its replies may differ from run to run.",
    ]


async def test_what_the_model_takes_is_kept(server) -> None:
    await (partner := partner_of(server, temperature=1.0, reasoning_effort="minimal")).act(VIEW)
    server.refuses = REFUSES  # the model behind the name is another one now, which costs no game
    assert replies(await ask_many(partner, 10)) == 10
    first, later = server.requests[0], server.requests[-1]
    assert (first["temperature"], first["seed"], first["reasoning_effort"]) == (1.0, 7, "minimal")
    assert (later["temperature"], later["reasoning_effort"], "seed" in later) == (1.0, "minimal", False)
    assert "reasoning_effort" not in partner_of(server).endpoint.parameters()


async def test_refusal_of_an_unsent_parameter_ends_the_tries(server) -> None:
    server.refuses = ("max_tokens",)
    server.meets = lambda body: Step("status", status=400, param="max_tokens", message="Use 'max_completion_tokens'.")
    with pytest.raises(PartnerFailure, match="Use 'max_completion_tokens'"):
        await partner_of(server).act(VIEW)
    assert len(server.times) == 2


async def test_policy_records_refused_parameters_refusals_and_thoughts(server) -> None:
    message = {"content": None, "refusal": "I cannot.", "reasoning_content": "Hm."}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    server.refuses = REFUSES
    script(server, Step("status", status=200, body=body))
    policy = ChatPolicy(ChatPolicyConfig(model=server.model, base_url=server.url))
    reply = await policy.act(view_after(seat=0))
    assert policy.identity["refused"] == ["max_tokens", "seed"], "the policy's temperature is 1, which all take"
    assert (reply.text, reply.thought) == ("", "Hm.\n\n(It refused: I cannot.)")


@pytest.mark.parametrize("model", ["gpt-5.4-mini-2026-03-17", "gpt-6-luna", "Qwen/Qwen3-32B"])
async def test_successor_setting_makes_a_working_partner(server, model, monkeypatch) -> None:
    """The guide's line of settings: its key, its price and its budget go together."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    guide = (ROOT / "docs" / "how-to" / "partners.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in guide if line.startswith(f"--set partner.openai.model={model} "))
    changes = shlex.split(line.replace("--set", ""))
    make_partner(load_config(ROOT / "configs" / "matching.yaml", changes))
    thinks = "gpt-" in model
    server.model, server.refuses, server.key = model, REFUSES[:3] if thinks else (), "sk-test"
    here = load_config(ROOT / "configs" / "matching.yaml", [*changes, f"partner.openai.base_url={server.url}"])
    assert here.partner.openai.model == model and (await make_partner(here).act(VIEW)).text == ANSWER
    (sent,) = server.requests
    expected = {"reasoning_effort": "none", "max_completion_tokens": 300}
    assert (expected if thinks else {"chat_template_kwargs": {"enable_thinking": False}}).items() <= sent.items()


@pytest.mark.parametrize(("named", "date"), [("2027-01-14", "2027-01-14"), (None, None), ("soon", None)])
async def test_end_of_a_model_is_the_endpoints_word(server, named, date) -> None:
    server.shutdown = named
    assert await partner_of(server).endpoint.shutdown_date() == date


# Tokens read, tokens cached (which some servers leave out of those read), and whether the prompt was cut
USAGES = [(130, 0, True), (20, 0, True), (1300, 0, False), (130, 1170, False), (0, 0, False)]


@pytest.mark.parametrize(("read", "cached", "cut"), USAGES)
async def test_prompt_that_is_cut_is_warned_of_once(server, read, cached, cut, caplog) -> None:
    usage = {"prompt_tokens": read, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": cached}}
    server.meets = lambda body: Step(usage=usage)
    assert replies(await ask_many(partner_of(server), 5)) == 5
    assert sum("cuts prompts without saying so" in text for text in logged(caplog)) == cut


# --- keys and addresses


async def test_key_headers_and_query_are_sent(server, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MY_KEY", "bWU6cGFzcyB3b3Jk")
    for name in ("OPENAI_API_KEY", "MY_KEY"):
        await partner_of(server, api_key_env=name).act(VIEW)
    assert [each.get("Authorization") for each in server.headers] == [None, "Bearer bWU6cGFzcyB3b3Jk"]
    headers = {"Authorization": "Basic {key}", "api-key": "{key}", "X-Team": "one"}
    partner = partner_of(server, headers=headers, query={"api-version": "2024-10-21"}, api_key_env="MY_KEY")
    script(server, POISON, Step("status", status=400, message="{authorization}"))
    with pytest.raises(PartnerFailure, match=r"HTTP 400: \*\*\* "):
        await partner.act(VIEW)
    sent = {name.lower(): value for name, value in server.headers[-1].items()}
    expected = {"authorization": "Basic bWU6cGFzcyB3b3Jk", "api-key": "bWU6cGFzcyB3b3Jk", "x-team": "one"}
    assert expected.items() <= sent.items() and server.queries[2:] == ["api-version=2024-10-21"] * 2
    assert "bWU6" not in json.dumps(partner.identity)


MALFORMED = ["sk-two words", "sk-line\nbreak", "sk-\u00fcml\u00e4ut", "sk-\x07bell", "\ufeffsk-mark"]
NO_KEY = r"^No key for https://api\.openai\.com/v1\. Set the environment variable OPENAI_API_KEY"
NO_SUCH_KEY = r"^The key in \$OPENAI_API_KEY holds a space.*Copy it again\.$"


@pytest.mark.parametrize(
    ("key", "url", "sentence"), [("", None, NO_KEY), *((key, "http://h/v1", NO_SUCH_KEY) for key in MALFORMED)]
)
def test_missing_or_malformed_key_is_said_at_once(key, url, sentence, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match=sentence) as failure:
        OpenAIPartner(partner_config(url).openai)
    assert not key or key not in str(failure.value)


WRONG = {"http://no-such-host.invalid/v1": "its address is not known", "https://{host}/v1": "no secure connection"}


@pytest.mark.parametrize(("url", "sentence"), WRONG.items())
async def test_wrong_address_stops_the_run_at_once(server, url, sentence, caplog) -> None:
    url = url.format(host=server.url.split("/")[2])
    partner, begun = MatchingChatPartner(partner_config(url, concurrency=1).openai), time.monotonic()
    outcomes = await ask_many(partner, 5)
    assert replies(outcomes) == 0 and time.monotonic() - begun < 5
    assert sentence in str(outcomes[-1]) and "is partner.openai.base_url right?" in str(outcomes[-1])
    assert len(logged(caplog, logging.ERROR)) == 1


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_proxy_is_for_other_machines_alone(server, monkeypatch, variable) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    local, nowhere = server.url.removesuffix("/v1"), "http://127.0.0.1:9"
    ways = [(nowhere, local), (nowhere, local.replace("127.0.0.1", "localhost")), (local, "http://partner.invalid")]
    for proxy, host in ways:
        monkeypatch.setenv(variable, proxy)
        partner = OpenAIPartner(partner_config(f"{host}/v1", max_retries=0).openai)
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
