"""What a run's calls have cost outlives every kind of stop, and its budget is one for all its starts and processes."""

from __future__ import annotations

import json
import os
import signal
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

from slim_rl.config import parse_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.partners.spend import FOLDER, Spend
from tests.fakes.openai_server import OpenAIServer
from tests.partners.openai_setup import partner_config, partner_of, spent_usd
from tests.partners.test_openai_endpoint import ask_many
from tests.paths import ROOT

BUDGET = 0.02  # US dollars; a call takes some 0.0007 of them, where the provider has cached its beginning

# A process of a run: asks for ever, or until the budget is spent, `concurrency` calls at a time.
ASKS = """
import asyncio, sys
from pathlib import Path
from slim_rl.dialogue.players import PartnerFailure
from tests.partners.openai_setup import QUESTION, partner_of, view_after

class Server: url = sys.argv[1]

partner = partner_of(Server, concurrency=4, budget_usd=float(sys.argv[3]) or None)
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
def asking(server: str, folder: Path, budget: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", ASKS, server, str(folder), str(budget)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, env=os.environ | {"PYTHONPATH": "."}, **pipes)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def begin(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


@contextmanager
def serving(latency: float) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fakes.openai_server", "--latency", str(latency)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def answered(url: str) -> int:
    """Answers that the server has given."""
    import urllib.request

    with urllib.request.urlopen(url.removesuffix("/v1") + "/tally") as tally:
        return sum(game.get("answer", 0) for game in json.load(tally)["games"].values())


def totals(folder: Path) -> list[dict[str, Any]]:
    """What each process has spent."""
    return [json.loads(file.read_text()) for file in (folder / FOLDER).glob("*.json")]


@pytest.fixture
async def server() -> Any:
    async with OpenAIServer() as running:
        yield running


def test_a_kill_loses_the_calls_in_flight_at_most(tmp_path: Path) -> None:
    with serving(0.01) as url:
        with asking(url, tmp_path) as process:
            begin(process)
            while answered(url) < 40:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            process.wait()
        counted, sent = sum(total["calls"] for total in totals(tmp_path)), answered(url)
    assert sent >= 40 and sent - 4 <= counted <= sent, "four calls at a time"
    assert spent_usd(tmp_path) == pytest.approx(sum(total["cost_usd"] for total in totals(tmp_path)))


def test_processes_at_work_together_share_the_budget(tmp_path: Path) -> None:
    budget = 0.15
    with serving(0.02) as url, asking(url, tmp_path, budget) as one, asking(url, tmp_path, budget) as other:
        begin(one, other)
        assert one.wait(400) == other.wait(400) == 0
        price = spent_usd(tmp_path) / answered(url)
        assert len(totals(tmp_path)) == 2
        assert budget <= spent_usd(tmp_path) <= budget + 2 * 4 * 2 * price, (
            "what was in flight, at twice the mean price"
        )


async def test_a_restart_has_what_is_left_of_the_budget(server: OpenAIServer, tmp_path: Path) -> None:
    first = partner_of(server, budget_usd=BUDGET, concurrency=2)
    first.keep_spend(tmp_path)
    await ask_many(first, 6)
    assert 0 < first.usage.cost_usd < BUDGET
    again = partner_of(server, budget_usd=BUDGET, concurrency=2)
    again.keep_spend(tmp_path)
    again.keep_spend(tmp_path)
    outcomes = await ask_many(again, 60)
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, PartnerFailure)} == {StopReason.BUDGET}
    assert BUDGET <= spent_usd(tmp_path) <= BUDGET + 2 * first.usage.cost_usd / 6
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
    assert spent_usd(tmp_path) == pytest.approx(partner.usage.cost_usd)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30))
def test_a_run_has_spent_the_sum_of_its_processes(tmp_path_factory: Any, calls: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("run")
    spends, sums = [Spend(folder=folder) for _ in range(4)], [0.0] * 4
    for process, usd in calls:
        sums[process] += usd
        spends[process].add(Usage(cost_usd=usd))
        for mine, spend in enumerate(spends):
            assert spend.spent_elsewhere() == pytest.approx(sum(sums) - sums[mine])
    assert spent_usd(folder) == pytest.approx(sum(sums))


def test_a_folder_that_is_only_looked_at_stays_as_it_is(tmp_path: Path) -> None:
    assert spent_usd(tmp_path) == 0.0 and not list(tmp_path.iterdir())
