"""What calls cost: counted whatever the endpoint says, within one budget for all starts and processes of a run, and kept at every kind of stop."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig, Price, parse_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.games.matching.study.audit import audit
from slim_rl.http import Response
from slim_rl.partners.answers import LEARNED, MOST_TOKENS, AnswerReader, Fault, count_tokens
from slim_rl.partners.quoting import Secrets
from slim_rl.partners.spend import FOLDER
from tests.fakes.openai_server import ODD_USAGE, OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    FLAT,
    VIEW,
    ask_many,
    asks,
    partner_config,
    partner_of,
    play,
    spend_elsewhere,
    spent_usd,
    started,
)

# --- what an endpoint says of its answer

TABLES = yaml.safe_load(Path(__file__).with_name("money.yaml").read_text(encoding="utf-8"))
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
    read, cached, written = (counts[name] for name in ("input_tokens", "cached_tokens", "output_tokens"))
    assert 0 <= cached <= read <= MOST_TOKENS and 0 <= written <= MOST_TOKENS and read >= 1
    assert {type(count) for count in (read, cached, written)} == {int}


@pytest.mark.parametrize("row", TABLES["counted"])
def test_what_can_be_is_believed_and_the_rest_estimated(row: list[Any]) -> None:
    usage, *counts = row
    assert list(count_tokens(usage, BODY, "x" * 40).values()) == counts


@given(st.one_of(st.text(), JSON.map(json.dumps), JSON.map(lambda data: json.dumps({"choices": [{"message": data}]}))))
def test_an_answer_of_any_shape_is_read_or_refused(content: str) -> None:
    answer = READER.read(Response(200, content.encode("utf-8", "replace"), {}), BODY, ever_answered=False)
    if isinstance(answer, Fault):
        assert len(answer.why) < 400
    else:
        json.dumps(answer, ensure_ascii=False).encode()


@given(JSON, JSON, JSON | st.sampled_from([200, 400, "413", 422, 429, "9" * 5000]))
def test_fault_of_any_shape_is_one(error: Any, detail: Any, code: Any) -> None:
    inner = {"message": error, "code": code, "param": error}
    shaped = {"error": inner, "detail": detail, "choices": [{"error": detail}]}
    for body in (error, {"error": error, "code": code}, {"detail": [{"loc": detail, "msg": error}]}, [shaped], shaped):
        fault = READER.read(Response(400, json.dumps(body).encode(), {}), BODY, ever_answered=False)
        assert isinstance(fault, Fault) and len(fault.why) < 2000 and (fault.parameter or "seed") in {*BODY, *LEARNED}


async def test_game_ended_by_malformed_replies_records_cost(server: OpenAIServer) -> None:
    replies = iter(["I see it.\n[message] 60.\n\nNow it knows.", *["malformed"] * 3])
    server.answer = lambda body: next(replies)
    partner = partner_of(server, malformed_retries=2)
    dialogue = await play(asks(), partner)
    assert dialogue.stop_reason is StopReason.PARTNER_ERRORS and len(server.requests) == 4
    assert [turn.role for turn in dialogue.turns] == ["policy", "partner", "policy", "partner"]
    _, aside, _, last = dialogue.turns
    assert aside.text == "[message] 60." and "Now it knows." in (aside.thought or "")
    assert last.usage is not None and last.usage.malformed == 2 and last.error == dialogue.failure
    cost = sum(turn.usage.cost_usd for turn in dialogue.turns if turn.usage)
    assert cost == pytest.approx(partner.endpoint.spend.total.cost_usd) and cost > 0
    assert (audit(dialogue)["malformed"], audit(dialogue)["aside"]) == ((3, 4), (1, 1))


# --- one budget for a run

# A process of a run: asks until the budget is spent, four calls at a time.
ASKS = """
import asyncio, itertools, sys
from pathlib import Path
from slim_rl.dialogue.players import PartnerFailure
from tests.partners.openai_setup import QUESTION, partner_of, view_after

class Server: url = sys.argv[1]

partner = partner_of(Server, concurrency=4, budget_usd=float(sys.argv[3]))
partner.keep_spend(Path(sys.argv[2]))

async def ask(number):
    try:
        for seed in itertools.count(number, 4):
            await partner.act(view_after(QUESTION, seed=seed))
    except PartnerFailure as failure:
        assert failure.reason == "budget", failure

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*map(ask, range(4)))

asyncio.run(main())
"""


def totals(folder: Path) -> list[dict[str, Any]]:
    """What each process has spent."""
    return [json.loads(file.read_text()) for file in (folder / FOLDER).glob("*.json")]


def test_processes_share_a_budget_and_a_kill_loses_little(tmp_path: Path) -> None:
    budget = 0.06
    with (
        OpenAIServer(latency=0.01) as server,
        started(ASKS, *[[server.url, str(tmp_path), str(budget)]] * 2) as (killed, other),
    ):
        while len(server.requests) < 50:
            time.sleep(0.02)
        killed.kill()
        killed.wait()
        assert other.wait(100) == 0
        sent, counted = len(server.requests), sum(total["calls"] for total in totals(tmp_path))
    assert len(totals(tmp_path)) == 2 and sent - 4 <= counted <= sent, "four calls at a time"
    spent = sum(total["cost_usd"] for total in totals(tmp_path))
    assert spent_usd(tmp_path) == pytest.approx(spent)
    assert budget <= spent <= budget + 2 * 4 * 2 * spent / counted, "what was in flight, at twice the mean price"
    assert min(total["calls"] for total in totals(tmp_path)) > 2 * 4 * 2, "enough that a budget each would be seen"


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
    assert len(server.requests) == 1 and sum(isinstance(outcome, Turn) for outcome in outcomes) == 1
    assert partner.stopped is not None and str(tmp_path / FOLDER) in partner.stopped
    (tmp_path / "spend").unlink()
    assert partner.stopped is None
    assert spent_usd(tmp_path) == pytest.approx(partner.endpoint.spend.total.cost_usd)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30))
def test_a_run_has_spent_the_sum_of_its_processes(tmp_path_factory: Any, calls: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("run")
    assert spent_usd(folder) == 0.0 and not list(folder.iterdir()), "it is only looked at"
    spends, sums = [spend_elsewhere(folder, 0.0) for _ in range(4)], [0.0] * 4
    for process, usd in calls:
        sums[process] += usd
        spends[process].add(Usage(cost_usd=usd))
        for mine, spend in enumerate(spends):
            assert spend.spent_elsewhere() == pytest.approx(sum(sums) - sums[mine])
    spends[0].keep(folder / "another run")
    spends[0].keep(folder)  # as one who comes back
    spends[0].add(Usage(cost_usd=1.0))
    assert spent_usd(folder) == pytest.approx(sum(sums) + 1.0)


BUDGETS = [(True, 1, True), (True, 16, False), (True, 64, True), *((odd, 4, False) for odd in (None, *ODD_USAGE))]


@pytest.mark.parametrize(("usage", "concurrency", "kept"), BUDGETS, ids=str)
async def test_budget_is_exceeded_by_calls_in_flight_at_most(
    server: OpenAIServer, tmp_path: Path, usage: Any, concurrency: int, kept: bool
) -> None:
    server.latency, server.meets = 0.01, lambda body: Step(usage=usage, seconds=0.01)
    partner = partner_of(server, budget_usd=0.05, concurrency=concurrency, **FLAT)
    if kept:
        partner.keep_spend(tmp_path)
    outcomes, total = await ask_many(partner, 60 + concurrency), partner.endpoint.spend.total
    usages = [outcome.usage for outcome in outcomes if isinstance(outcome, Turn) and outcome.usage]
    prices = [each.cost_usd for each in usages]
    refused = {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)}
    assert 2 <= len(prices) < len(outcomes) and refused == {StopReason.BUDGET}
    assert 0.05 <= total.cost_usd <= 0.05 + concurrency * max(prices)
    assert sum(prices) == pytest.approx(total.cost_usd), "what was paid for is played"
    assert [each["cost_usd"] for each in totals(tmp_path)] == [total.cost_usd] * kept
    assert {each.estimated for each in usages} == {int(usage is not True)}
    assert ("usage" in partner.endpoint.warned) == (usage is not True)


async def test_budget_spent_by_another_process_stops_this_one(server: OpenAIServer, tmp_path: Path) -> None:
    def start(budget: float) -> Any:
        partner = partner_of(server, budget_usd=budget)
        partner.keep_spend(tmp_path)
        return partner

    spend_elsewhere(tmp_path, 0.9)  # as an interrupted start may have, too
    partner = start(1.0)
    assert (await partner.act(VIEW)).text == ANSWER
    partner.keep_spend(tmp_path)  # again, which changes nothing
    spend_elsewhere(tmp_path, 0.1)
    for each in (partner, start(1.0)):
        with pytest.raises(PartnerFailure, match=r"budget of \$1\.00 is spent \(\$1\.00\d*[1-9]\)\. Raise") as failure:
            await each.act(VIEW)
        assert failure.value.reason is StopReason.BUDGET and str(failure.value) == each.stopped
    assert len(server.requests) == 1
    richer = start(1.1)
    assert richer.stopped is None and (await richer.act(VIEW)).text == ANSWER


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


# --- prices


def test_prices_are_those_of_the_model_unless_replaced() -> None:
    table = OpenAIConfig().prices
    for model, entry in TABLES["entries"].items():
        assert OpenAIConfig(model=model).price == table.get(entry), model
    for model, *tokens, usd in TABLES["costs"]:
        assert OpenAIConfig(model=model).price.cost_usd(*tokens) == pytest.approx(usd)
    own = OpenAIConfig(model="gpt-5-pro", prices={"gpt-5-pro": {"input": 15, "output": 120}})
    assert own.price == Price(input=15, output=120) and OpenAIConfig(model="gpt-5-pro").price is None
    total = Usage(1, 100, 64, 10, 0.5, 2, 1, "a") + Usage(2, 50, 0, 5, 0.25, 0, 0, None)
    assert total == Usage(3, 150, 64, 15, 0.75, 2, 1, "a")
