"""What calls cost: counted whatever the endpoint says, within one budget for all starts and processes of a run, and kept at every kind of stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig, Price, hosted, parse_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError
from slim_rl.games.matching.study.audit import audit
from slim_rl.http import Response
from slim_rl.partners.answers import LEARNED, MOST_TOKENS, AnswerReader, Fault, count_tokens
from slim_rl.partners.openai_chat import OpenAIPartner
from slim_rl.partners.quoting import Secrets
from slim_rl.partners.spend import FOLDER, Spend
from tests.fakes.openai_server import ODD_USAGE, OpenAIServer, Step, serving
from tests.partners.openai_setup import (
    ANSWER,
    FLAT,
    QUESTION,
    VIEW,
    Asks,
    ask_many,
    partner_config,
    partner_of,
    play,
    spend_elsewhere,
    spent_usd,
    view_after,
)
from tests.paths import ROOT

BODY = {"model": "m", "max_tokens": 300, "messages": [{"role": "user", "content": "x" * 4000}]}
READER = AnswerReader(OpenAIConfig(), Secrets())
COUNTS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just(10**400))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


DETAILS = JSON | st.fixed_dictionaries({"cached_tokens": COUNTS})
USAGE = {"prompt_tokens": COUNTS, "completion_tokens": COUNTS, "prompt_tokens_details": DETAILS}


@given(JSON | st.fixed_dictionaries(USAGE), st.text(max_size=200))
def test_counts_are_bounded_whatever_is_told(usage: Any, text: str) -> None:
    counts = count_tokens(usage, BODY, text)
    assert 1 <= counts["input_tokens"] <= MOST_TOKENS
    assert 0 <= counts["output_tokens"] <= MOST_TOKENS
    assert 0 <= counts["cached_tokens"] <= counts["input_tokens"]
    assert all(type(counts[name]) is int for name in ("input_tokens", "cached_tokens", "output_tokens"))


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
    assert 0.0475 <= partner.endpoint.spend.total.cost_usd < 0.15


async def test_an_absurd_usage_holds_nothing_up(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    absurd = {"prompt_tokens": 10**12, "completion_tokens": 10**12}
    server.script.extend([Step(usage=absurd)])  # type: ignore[attr-defined]
    partner = partner_of(server, tokens_per_minute=6_000_000)
    await partner.act(view_after(QUESTION))
    assert all(isinstance(outcome, Turn) for outcome in await ask_many(partner, 20))
    assert partner.endpoint.spend.total.estimated == 1
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
    assert cost == pytest.approx(partner.endpoint.spend.total.cost_usd) and cost > 0
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


BUDGET = 0.02  # US dollars; a call takes some 0.0007 of them, where the provider has cached its beginning

# A process of a run: asks for ever, or until the budget is spent, `concurrency` calls at a time.
ASKS = """
import asyncio, sys
from pathlib import Path
from slim_rl.dialogue.players import PartnerFailure
from tests.partners.openai_setup import QUESTION, partner_of, view_after

class Server: url = sys.argv[1]

partner = partner_of(Server, concurrency=4, budget_usd=float(sys.argv[3]))
partner.keep_spend(Path(sys.argv[2]))

async def ask(number):
    seed = number
    while True:
        try:
            await partner.act(view_after(QUESTION, seed=seed))
        except PartnerFailure as failure:
            assert failure.reason == "budget", failure
            return
        seed += 4

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*map(ask, range(4)))

asyncio.run(main())
"""


@contextmanager
def asking(server: str, folder: Path, budget: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", ASKS, server, str(folder), str(budget)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, env=os.environ | {"PYTHONPATH": "."}, **pipes)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def answered(server: OpenAIServer) -> int:
    """Answers that the server has given."""
    return sum(game.get("answer", 0) for game in list(server.tally.values()))


def totals(folder: Path) -> list[dict[str, Any]]:
    """What each process has spent."""
    return [json.loads(file.read_text()) for file in (folder / FOLDER).glob("*.json")]


def test_processes_share_a_budget_and_a_kill_loses_little(tmp_path: Path) -> None:
    budget = 0.06
    with (
        serving(latency=0.01) as server,
        asking(server.url, tmp_path, budget) as killed,
        asking(server.url, tmp_path, budget) as other,
    ):
        for process in (killed, other):
            print(file=process.stdin, flush=True)
        while answered(server) < 50:
            time.sleep(0.02)
        killed.kill()
        killed.wait()
        assert other.wait(100) == 0
        sent, counted = answered(server), sum(total["calls"] for total in totals(tmp_path))
    assert len(totals(tmp_path)) == 2 and sent - 4 <= counted <= sent, "four calls at a time"
    spent = sum(total["cost_usd"] for total in totals(tmp_path))
    assert spent_usd(tmp_path) == pytest.approx(spent)
    assert budget <= spent <= budget + 2 * 4 * 2 * spent / counted, "what was in flight, at twice the mean price"
    assert min(total["calls"] for total in totals(tmp_path)) > 2 * 4 * 2, "enough that a budget each would be seen"


async def test_a_restart_has_what_is_left_of_the_budget(server: OpenAIServer, tmp_path: Path) -> None:
    first = partner_of(server, budget_usd=BUDGET, concurrency=2)
    first.keep_spend(tmp_path)
    await ask_many(first, 6)
    assert 0 < first.endpoint.spend.total.cost_usd < BUDGET
    again = partner_of(server, budget_usd=BUDGET, concurrency=2)
    again.keep_spend(tmp_path)
    again.keep_spend(tmp_path)
    outcomes = await ask_many(again, 60)
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)} == {StopReason.BUDGET}
    assert BUDGET <= spent_usd(tmp_path) <= BUDGET + 2 * first.endpoint.spend.total.cost_usd / 6
    sent = len(server.requests)
    third = partner_of(server, budget_usd=BUDGET)
    third.keep_spend(tmp_path)
    assert third.stopped is not None and "budget of $0.02 is spent" in third.stopped
    assert not [outcome for outcome in await ask_many(third, 3) if isinstance(outcome, Turn)]
    assert len(server.requests) == sent
    richer = partner_of(server, budget_usd=1.0)
    richer.keep_spend(tmp_path)
    assert richer.stopped is None and isinstance((await ask_many(richer, 1))[0], Turn)


async def test_another_run_of_the_process_begins_at_nothing(server: OpenAIServer, tmp_path: Path) -> None:
    data = {"partner": partner_config(server.url, budget_usd=0.5).model_dump(mode="json")}
    for name in ("one", "two"):
        worker = RolloutWorker(parse_config(data), None)
        worker.keep_spend(tmp_path / name)
        assert isinstance((await ask_many(make_partner(worker.config), 1))[0], Turn)
    assert spent_usd(tmp_path / "one") > spent_usd(tmp_path / "two") > 0, "the second call's beginning is cached"
    assert [total["calls"] for name in ("one", "two") for total in totals(tmp_path / name)] == [1, 1]


async def test_what_cannot_be_counted_is_not_paid_for(server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "spend").write_text("not a folder")
    partner = partner_of(server, concurrency=1)
    partner.keep_spend(tmp_path)
    outcomes = await ask_many(partner, 5)
    assert len(server.requests) == 1
    assert sum(isinstance(outcome, Turn) for outcome in outcomes) == 1, "what was paid for is played"
    assert partner.stopped is not None and str(tmp_path / FOLDER) in partner.stopped
    (tmp_path / "spend").unlink()
    assert partner.stopped is None
    assert spent_usd(tmp_path) == pytest.approx(partner.endpoint.spend.total.cost_usd)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30))
def test_a_run_has_spent_the_sum_of_its_processes(tmp_path_factory: Any, calls: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("run")
    assert spent_usd(folder) == 0.0 and not list(folder.iterdir()), "it is only looked at"
    spends, sums = [Spend(folder=folder) for _ in range(4)], [0.0] * 4
    for process, usd in calls:
        sums[process] += usd
        spends[process].add(Usage(cost_usd=usd))
        for mine, spend in enumerate(spends):
            assert spend.spent_elsewhere() == pytest.approx(sum(sums) - sums[mine])
    assert spent_usd(folder) == pytest.approx(sum(sums))


@pytest.mark.parametrize(("concurrency", "kept"), [(1, True), (16, False), (256, True)])
async def test_budget_is_exceeded_by_calls_in_flight_at_most(
    server: OpenAIServer, tmp_path: Path, concurrency: int, kept: bool
) -> None:
    server.latency = 0.01
    budget = 0.05
    partner = partner_of(server, budget_usd=budget, concurrency=concurrency, **FLAT)
    if kept:
        partner.keep_spend(tmp_path)
    outcomes = await ask_many(partner, 400)
    prices = [outcome.usage.cost_usd for outcome in outcomes if isinstance(outcome, Turn) and outcome.usage]
    refused = {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)}
    assert len(prices) < 400 and refused == {StopReason.BUDGET}
    assert budget <= partner.endpoint.spend.total.cost_usd <= budget + concurrency * max(prices)
    assert sum(prices) == pytest.approx(partner.endpoint.spend.total.cost_usd), "what was paid for is played"
    if kept:
        (total,) = totals(tmp_path)
        assert total["cost_usd"] == pytest.approx(partner.endpoint.spend.total.cost_usd)


async def test_budget_spent_by_another_process_stops_this_one(server: OpenAIServer, tmp_path: Path) -> None:
    partner = partner_of(server, budget_usd=1.0)
    spend_elsewhere(tmp_path, 0.9)  # as an interrupted start may have, too
    partner.keep_spend(tmp_path)
    assert (await partner.act(VIEW)).text == ANSWER
    spend_elsewhere(tmp_path, 0.1)
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


def test_budget_needs_a_price() -> None:
    with pytest.raises(ConfigError, match="no entry for 'qwen'"):
        OpenAIPartner(partner_config("http://localhost:8000/v1", model="qwen", budget_usd=1).openai)


PRICES = {
    "gpt-4.1-2025-04-14": Price(input=2.0, cached=0.5, output=8.0),
    "gpt-4.1-mini-2025-04-14": Price(input=0.40, cached=0.10, output=1.60),
    "gpt-4.1-nano": Price(input=0.10, cached=0.025, output=0.40),
    "gpt-5": Price(input=1.25, cached=0.125, output=10.0),
    "Qwen/Qwen3-32B": None,
}
ENTRIES = {  # a price is a model's own, and not its family's
    "gpt-4.1-2025-04-14": "gpt-4.1",
    "gpt-5.4-mini-2026-03-17": "gpt-5.4-mini",
    "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
    "gpt-4o-2024-08-06": "gpt-4o",
    **dict.fromkeys(("gpt-5-pro", "gpt-5.2", "gpt-4o-audio-preview", "gpt-4")),
}


def test_prices_are_those_of_the_model_unless_replaced() -> None:
    assert {model: OpenAIConfig(model=model).price for model in PRICES} == PRICES
    assert {name: hosted.entry_of(name, hosted.PRICES) for name in ENTRIES} == ENTRIES
    own = OpenAIConfig(model="gpt-5-pro", prices={"gpt-5-pro": {"input": 15, "output": 120}})
    assert own.price == Price(input=15, output=120)
    luna, older = (OpenAIConfig(model=model).price for model in ("gpt-6-luna", "gpt-4.1"))
    assert luna is not None and luna.cost_usd(1_000_000, 500_000, 0, 400_000) == pytest.approx(0.01 + 0.005 + 0.05)
    assert older is not None and older.cost_usd(1_000_000, 0, 0, 400_000) == pytest.approx(2.0), "written at no charge"
    assert older.cost_usd(1_000_000, 400_000, 100_000) == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 8.0)
    total = Usage(1, 100, 64, 10, 0.5, 2, 1, "a") + Usage(2, 50, 0, 5, 0.25, 0, 0, None)
    assert total == Usage(3, 150, 64, 15, 0.75, 2, 1, "a")
