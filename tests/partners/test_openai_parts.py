"""The endpoint's parts on a clock of the test's own: rate limit, breaker, money, cassette."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig, Price
from slim_rl.dialogue.partner import PartnerFailure, Reply, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
from slim_rl.partners.breaker import Breaker
from slim_rl.partners.cassette import Cassette, request_key
from slim_rl.partners.ledger import Ledger
from slim_rl.partners.limiter import RateLimit
from slim_rl.partners.spend import Spend, cost_usd, estimate_cost, price_of
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, partner_of, view_after
from tests.paths import ROOT


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- rate limit


@given(
    st.floats(1, 10_000),
    st.floats(1, 100),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 100)), min_size=1, max_size=40),
)
def test_no_stretch_of_time_gets_more_than_its_share(
    per_minute: float, burst: float, arrivals: list[tuple[float, float]]
) -> None:
    clock = Clock()
    limit = RateLimit(per_minute, burst, clock)
    used = []
    for pause, units in arrivals:
        clock.now += pause
        used.append((clock.now + limit.reserve(units), units))
    assert used == sorted(used, key=lambda pair: pair[0]), "first come, first served"
    largest = max([burst, *(units for _, units in used)])
    for i in range(len(used)):
        for j in range(i, len(used)):
            passed = sum(units for _, units in used[i : j + 1])
            allowed = largest + (used[j][0] - used[i][0]) * per_minute / 60 + used[i][1]
            assert passed <= allowed * (1 + 1e-6)


def test_no_limit_never_waits() -> None:
    limit = RateLimit(None)
    assert [limit.reserve(1e9) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_wrong_guess_is_corrected() -> None:
    clock = Clock()
    limit = RateLimit(60, burst=1, clock=clock)
    assert limit.reserve(1) == 0.0
    limit.correct(9)  # it took ten
    assert limit.reserve(1) == pytest.approx(10)


# --- breaker


def breaker(clock: Clock, **changes: Any) -> Breaker:
    settings = {"failures": 3, "silent_seconds": 2.0, "probe_seconds": 10.0, "wait_seconds": 60.0} | changes
    return Breaker("http://here", clock=clock, **settings)


def test_failures_at_one_moment_are_no_outage() -> None:
    clock = Clock()
    one = breaker(clock)
    for _ in range(50):
        one.failure("timeout", object())
    assert not one.is_open
    clock.now += 2.0
    one.failure("timeout", object())
    assert one.is_open


def test_an_answer_in_between_is_no_outage() -> None:
    clock = Clock()
    one = breaker(clock)
    for _ in range(50):
        clock.now += 1.0
        one.failure("timeout", object())
        one.failure("timeout", object())
        one.success()
    assert not one.is_open


def test_one_probe_at_a_time_finds_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "why", 10.0)
    calls = [object() for _ in range(3)]
    assert all(0 < one.admit(call) <= 10 for call in calls)
    clock.now += 10.0
    assert one.admit(calls[0]) == 0.0
    assert one.admit(calls[1]) > 0.0
    one.failure("still down", calls[0])
    one.release(calls[0])
    assert one.admit(calls[1]) > 0.0, "a failed probe is followed by a pause"
    clock.now += 10.0
    assert one.admit(calls[1]) == 0.0
    one.success()
    one.release(calls[1])
    assert one.admit(calls[2]) == 0.0
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_another_call_that_ends_does_not_free_the_probe() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "why", 0.0)
    prober, late = object(), object()
    assert one.admit(prober) == 0.0
    one.failure("old call, timed out", late)
    one.release(late)
    assert one.admit(object()) > 0.0


def test_it_stops_for_good_in_the_end() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "no route", 10.0)
    clock.now += 60.0
    assert one.admit(object()) == 0.0
    assert one.stopped == (
        "The partner's endpoint http://here has not answered for 60 s (no route); no more calls are made. "
        "Fix it and resume the run."
    )


def test_a_refusal_is_final_only_before_the_first_answer() -> None:
    clock = Clock()
    fresh, used = breaker(clock), breaker(clock)
    fresh.refused("wrong key", object())
    assert fresh.stopped is not None
    used.success()
    used.refused("wrong key", object())
    assert used.stopped is None and not used.is_open


def test_one_calls_failures_are_no_outage_however_many() -> None:
    clock = Clock()
    one, poisoned, other = breaker(clock), object(), object()
    for _ in range(50):
        clock.now += 1.0
        one.failure("HTTP 503", poisoned)
    assert not one.is_open
    one.failure("HTTP 503", other)
    assert one.is_open


def test_wrong_answers_are_an_outage_only_over_many_calls() -> None:
    clock = Clock()
    one = breaker(clock, failures=4)
    for call in ("a", "b", "c") * 5:
        clock.now += 1.0
        one.failure("HTTP 500", call, answered=True)
    assert not one.is_open
    one.failure("HTTP 500", "d", answered=True)
    assert one.is_open


def test_a_pause_is_over_with_the_outage_it_was_asked_for_in() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("asks for a pause", "busy", 3600.0)
    assert one.admit(object()) == 10.0, "no call sleeps through the pause whole"
    one.success()
    one.open("fell", "why", 10.0)
    clock.now += 10.0
    assert one.admit(object()) == 0.0


def test_a_pause_leaves_time_for_a_probe() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("asks for a pause", "busy", 1e12)
    clock.now += 29.0
    assert one.admit(object()) > 0.0
    clock.now += 1.0
    assert one.admit(object()) == 0.0


def test_who_probed_in_vain_lets_others_go_first() -> None:
    clock = Clock()
    one, poisoned, other = breaker(clock), object(), object()
    one.open("fell", "why", 0.0)
    assert one.admit(poisoned) == 0.0
    one.failure("HTTP 500", poisoned, answered=True)
    one.release(poisoned)
    clock.now += 10.0
    assert one.admit(poisoned) > 0.0
    assert one.admit(other) == 0.0


def test_an_answer_from_before_a_refusal_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    one, early, probe = breaker(clock), object(), object()
    one.success(early)
    one.refused("key revoked", object(), surely=True)
    one.success(early)
    assert one.is_open
    clock.now += 10.0
    assert one.admit(probe) == 0.0
    one.success(probe)
    assert not one.is_open and len(caplog.records) == 2


def test_a_busy_endpoint_has_not_answered_yet() -> None:
    one = breaker(Clock())
    one.alive()
    one.refused("wrong key", object())
    assert one.stopped is not None


# --- money

PRICES = OpenAIConfig().prices


def test_gpt_41_prices() -> None:
    price = price_of("gpt-4.1-2025-04-14", PRICES)
    assert cost_usd(price, 1_000_000, 400_000, 100_000) == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 8.0)
    assert price_of("gpt-4.1-mini-2025-04-14", PRICES) == Price(input=0.40, cached=0.10, output=1.60)
    assert price_of("gpt-4.1-nano", PRICES) == Price(input=0.10, cached=0.025, output=0.40)
    assert price_of("Qwen/Qwen3-32B", PRICES) is None and cost_usd(None, 10, 0, 10) == 0.0


def test_usages_add_up() -> None:
    total = Usage(1, 100, 64, 10, 0.5, 2, 1, "a") + Usage(2, 50, 0, 5, 0.25, 0, 0, None)
    assert total == Usage(3, 150, 64, 15, 0.75, 2, 1, "a")


def test_what_an_interrupted_run_spent_counts(tmp_path: Path) -> None:
    Ledger(tmp_path).write({"cost_usd": 0.9})
    spend = Spend(budget_usd=1.0)
    spend.keep(tmp_path)
    assert spend.refusal(opening=True) is None
    spend.add(Usage(cost_usd=0.1))
    assert spend.refusal(opening=False) is not None


def test_an_estimate_grows_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    one = estimate_cost(OpenAIConfig(), 1000, partner_turns=5)
    assert one["calls"] == 5000
    assert 0 < one["usd"] < one["usd_uncached"]
    assert estimate_cost(OpenAIConfig(), 2000, partner_turns=5)["usd"] == pytest.approx(2 * one["usd"])
    # By hand: five calls that read 2000, then 100 more each (60 heard and 40 said), and write 40.
    for name, tokens in {"SYSTEM": 1840, "TABLE": 100, "TURN": 60, "REPLY": 40}.items():
        monkeypatch.setattr(f"slim_rl.partners.spend.{name}_TOKENS", tokens)
    five = estimate_cost(OpenAIConfig(), 1, 5)
    assert five["input_tokens"] == 2000 + 2100 + 2200 + 2300 + 2400 and five["output_tokens"] == 200
    assert five["cached_tokens"] == 1840 + 2000 + 2100 + 2200 + 2300
    assert five["usd_uncached"] == pytest.approx(11000 * 2e-6 + 200 * 8e-6)


def test_no_price_no_estimate() -> None:
    estimate = estimate_cost(OpenAIConfig(model="qwen"), 10)
    assert estimate["usd"] is None and estimate["input_tokens"] > 0


# --- cassette


def test_a_key_is_of_the_whole_request_and_the_seed() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "temperature": 0.0}
    keys = {
        request_key(request, 1),
        request_key(request, 2),
        request_key(request | {"temperature": 1.0}, 1),
        request_key(request | {"messages": []}, 1),
    }
    assert len(keys) == 4
    assert request_key(dict(reversed(request.items())), 1) == request_key(request, 1)


async def test_a_recorded_game_is_replayed_without_network(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "a.jsonl"
    views = [view_after(QUESTION, seed=seed) for seed in range(3)]
    async with OpenAIServer() as server:
        said = iter(["malformed", "[message] one", "[message] two", "[message] three"])
        server.answer = lambda body: next(said)
        recorder = partner_of(server, cassette=path, cassette_mode="record")
        recorded = [await recorder.reply(view) for view in views]
        again = await recorder.reply(views[0])
        assert again.text == recorded[0].text and len(server.requests) == 4
    replayer = partner_of(server, cassette=path, cassette_mode="replay")  # the server is gone
    replayed = [await replayer.reply(view) for view in views]
    assert [reply.text for reply in replayed] == ["[message] one", "[message] two", "[message] three"]
    assert replayed[0].usage == Usage(malformed=1, model=server.model), "nothing was asked, nothing paid"
    with pytest.raises(PartnerFailure, match=r"no answer to request [0-9a-f]{64}") as failure:
        await replayer.reply(view_after(QUESTION, seed=99))
    assert failure.value.reason is StopReason.PARTNER_FAILED


async def test_auto_asks_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    async with OpenAIServer() as server:
        for wanted in (1, 1, 2):
            partner = partner_of(server, cassette=path)
            for seed in range(wanted):
                assert isinstance(await partner.reply(view_after(QUESTION, seed=seed)), Reply)
        assert len(server.requests) == 2
        fresh = partner_of(server, cassette=path, cassette_mode="record")
        server.answer = lambda body: "[message] again"
        await fresh.reply(view_after(QUESTION, seed=0))
        assert len(server.requests) == 3
    replayer = partner_of(server, cassette=path, cassette_mode="replay")
    assert (await replayer.reply(view_after(QUESTION, seed=0))).text == "[message] again"


async def test_the_same_asked_twice_at_once_has_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    async with OpenAIServer(latency=0.02) as server:
        said = iter(["[message] one", "[message] two"])
        server.answer = lambda body: next(said)
        partner = partner_of(server, cassette=path)
        view = view_after(QUESTION)
        first, second = await asyncio.gather(partner.reply(view), partner.reply(view))
    assert len(server.requests) == 2 and first.text == second.text
    assert len(path.read_text().splitlines()) == 1


async def test_failed_requests_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    async with OpenAIServer(script=[Step("status", status=500), Step("junk")]) as server:
        await partner_of(server, cassette=path).reply(view_after(QUESTION))
    assert len(path.read_text().splitlines()) == 1


def test_a_torn_line_is_skipped_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    first = Cassette(path)
    first.keep("k1", {}, 0, {"text": "one"})
    with path.open("a") as file:
        file.write('{"key": "k2", "ans')
    second = Cassette(path)
    assert second.get("k1") == {"text": "one"} and second.get("k2") is None
    assert "1 torn line" in caplog.text
    second.keep("k3", {}, 0, {"text": "three"})
    assert len(Cassette(path)) == 2
    assert json.loads(path.read_text().splitlines()[-1])["key"] == "k3"


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"7",
        b"null",
        b'{"key": ["a"], "answer": {"text": "x"}}',
        b'{"key": "k", "answer": "x"}',
        b'{"key": "k", "answer": {"text": 5}}',
        b'{"key": "k", "answer": {"text": "x", "finish_reason": [], "model": 1}}',
        b'{"key": "k"}',
        b'{"key": "k", "answer": {"text": 1e400}}',
    ],
    ids=range(10),
)
async def test_a_malformed_line_counts_as_not_recorded(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    Cassette(path).keep("good", {}, 0, {"text": "one"})
    with path.open("ab") as file:
        file.write(line + b"\n")
    cassette = Cassette(path)
    assert cassette.get("k") is None and cassette.get("good") == {"text": "one"} and len(cassette) == 1


RECORDER = """
import sys
from pathlib import Path
from slim_rl.partners.cassette import Cassette
path, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
cassette = Cassette(path, mode)
print("ready", flush=True)
sys.stdin.readline()
for number in range(400):
    stands = cassette.keep(f"k{number}", {"n": number}, 0, {"text": f"{name} {number}"})
    print(stands["text"])
"""


@pytest.mark.parametrize("mode", ["auto", "record"])
def test_two_processes_on_one_cassette_have_one_answer_a_key(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.jsonl"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path), name, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert len(said[0]) == 400 and said[0] == said[1]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 400 and [line["answer"]["text"] for line in lines] == said[0]


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.partners.locks.LOCK_SECONDS", 0.05)
    cassette = Cassette(tmp_path / "a.jsonl")
    with (tmp_path / "a.jsonl").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="keeps it locked; make it writable"):
            cassette.keep("k", {}, 0, {"text": "one"})
        assert cassette.trouble is not None
    cassette.flush()
    assert cassette.get("k") == {"text": "one"} and cassette.trouble is None


def test_what_another_process_recorded_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    one, two = Cassette(path), Cassette(path)
    one.keep("k", {}, 0, {"text": "first"})
    assert two.get("k") == {"text": "first"}
    assert two.keep("k", {}, 0, {"text": "second"}) == {"text": "first"}
    assert len(path.read_text().splitlines()) == 1


def test_an_answer_is_not_glued_to_what_another_left_half_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    one = Cassette(path)
    one.keep("k1", {}, 0, {"text": "first"})
    with path.open("a") as file:
        file.write('{"key": "k2", "ans')
    one.keep("k3", {}, 0, {"text": "third"})
    assert [json.loads(line)["key"] for line in (path.read_text().splitlines()[n] for n in (0, 2))] == ["k1", "k3"]
    assert len(Cassette(path)) == 2


def test_replay_needs_a_cassette(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Cassette(tmp_path / "none.jsonl", "replay")
