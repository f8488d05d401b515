"""The endpoint's parts on a clock of the test's own: rate limit, breaker, money."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig, Price
from slim_rl.dialogue.record import Usage
from slim_rl.partners.limits import Breaker, RateLimit
from slim_rl.partners.spend import Spend
from tests.partners.openai_setup import spend_elsewhere


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- rate limit


class Skips(asyncio.SelectorEventLoop):
    """An event loop whose time is the test's own: it does not sleep, it skips."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        select = self._selector.select

        def skip(timeout: float | None = None) -> Any:
            self.now += max(timeout or 0.0, 1e-9)  # no clock stands still
            return select(0)

        self._selector.select = skip  # type: ignore[method-assign]

    def time(self) -> float:
        return self.now


def on_its_own_clock(made: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with asyncio.Runner(loop_factory=Skips) as runner:
        return runner.run(made())


@settings(deadline=None)
@given(
    st.floats(1, 10_000),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 100)), min_size=1, max_size=40),
)
def test_no_stretch_of_time_gets_more_than_its_share(per_minute: float, arrivals: list[tuple[float, float]]) -> None:
    used: list[tuple[int, float, float]] = []
    burst = max(1.0, per_minute / 60)

    async def play() -> None:
        limit, loop = RateLimit(per_minute), asyncio.get_running_loop()

        async def one(number: int, units: float) -> None:
            await limit.take(units)
            used.append((number, loop.time(), units))

        calls = []
        for number, (pause, units) in enumerate(arrivals):
            await asyncio.sleep(pause)
            calls.append(asyncio.create_task(one(number, units)))
        await asyncio.gather(*calls)

    on_its_own_clock(play)
    assert used == sorted(used, key=lambda call: call[0]), "first come, first served"
    largest = max([burst, *(units for _, _, units in used)])
    for i in range(len(used)):
        for j in range(i, len(used)):
            passed = sum(units for _, _, units in used[i : j + 1])
            allowed = largest + (used[j][1] - used[i][1]) * per_minute / 60 + used[i][2]
            assert passed <= allowed * (1 + 1e-6)


def test_no_limit_never_waits() -> None:
    async def play() -> float:
        limit = RateLimit(None)
        for _ in range(3):
            await limit.take(1e9)
        return asyncio.get_running_loop().time()

    assert on_its_own_clock(play) == pytest.approx(100.0)


# --- breaker


def breaker(clock: Clock, failures: int = 3) -> Breaker:
    one = Breaker("http://here", 60.0, clock)
    one.failures, one.seconds = failures, 2.0
    return one


def test_failures_at_one_moment_are_no_outage() -> None:
    clock = Clock()
    one = breaker(clock)
    for _ in range(50):
        one.failure("timeout", object(), clock.now)
    assert not one.is_open
    clock.now += 2.0
    one.failure("timeout", object(), clock.now)
    assert one.is_open


def test_an_answer_in_between_is_no_outage() -> None:
    clock = Clock()
    one = breaker(clock)
    for _ in range(50):
        clock.now += 1.0
        one.failure("timeout", object(), clock.now)
        one.failure("timeout", object(), clock.now)
        one.alive(answered=True)
    assert not one.is_open


def test_breaker_failed_probe_is_followed_by_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "why")
    assert one.wait() == 10.0
    clock.now += 10.0
    assert one.wait() == 0.0
    one.failure("still down", object(), clock.now)
    assert one.wait() == 10.0
    clock.now += 10.0
    assert one.wait() == 0.0
    one.alive(answered=True)
    assert not one.is_open and one.wait() == 0.0
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_breaker_failure_sent_before_the_outage_delays_no_probe() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "why")
    clock.now += 9.0
    one.failure("timeout", object(), 99.0)
    assert one.wait() == 1.0


def test_it_stops_for_good_in_the_end() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("fell", "no route")
    clock.now += 60.0
    assert one.wait() == 0.0
    assert one.stopped == (
        "The partner's endpoint http://here has not answered for 60 s (no route). Fix it and resume the run."
    )


def test_a_refusal_is_final_only_before_the_first_answer() -> None:
    clock = Clock()
    fresh, used = breaker(clock), breaker(clock)
    fresh.refused("wrong key", object(), clock.now)
    assert fresh.stopped is not None
    used.alive(answered=True)
    used.refused("wrong key", object(), clock.now)
    assert used.stopped is None and not used.is_open


def test_one_calls_failures_are_no_outage_however_many() -> None:
    clock = Clock()
    one, poisoned, other = breaker(clock), object(), object()
    for _ in range(50):
        clock.now += 1.0
        one.failure("HTTP 503", poisoned, clock.now)
    assert not one.is_open
    one.failure("HTTP 503", other, clock.now)
    assert one.is_open


def test_wrong_answers_are_an_outage_only_over_many_calls() -> None:
    clock = Clock()
    one = breaker(clock, failures=4)
    for call in ("a", "b", "c") * 5:
        clock.now += 1.0
        one.failure("HTTP 500", call, clock.now, answered=True)
    assert not one.is_open
    one.failure("HTTP 500", "d", clock.now, answered=True)
    assert one.is_open


def test_a_pause_is_over_with_the_outage_it_was_asked_for_in() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("asks for a pause", "busy", 3600.0)
    assert one.wait() == 10.0, "no call sleeps through the pause whole"
    one.alive(answered=True)
    one.open("fell", "why")
    clock.now += 10.0
    assert one.wait() == 0.0


def test_a_pause_leaves_time_for_a_probe() -> None:
    clock = Clock()
    one = breaker(clock)
    one.open("asks for a pause", "busy", 1e12)
    clock.now += 29.0
    assert one.wait() > 0.0
    clock.now += 1.0
    assert one.wait() == 0.0


def test_a_busy_endpoint_has_not_answered_yet() -> None:
    clock = Clock()
    one = breaker(clock)
    one.alive()
    one.refused("wrong key", object(), clock.now)
    assert one.stopped is not None


# --- money


def price_of(model: str) -> Price | None:
    return OpenAIConfig(model=model).price


def test_gpt_41_prices() -> None:
    price = price_of("gpt-4.1-2025-04-14")
    assert price is not None and price.cost_usd(1_000_000, 400_000, 100_000) == pytest.approx(
        0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 8.0
    )
    assert price_of("gpt-4.1-mini-2025-04-14") == Price(input=0.40, cached=0.10, output=1.60)
    assert price_of("gpt-4.1-nano") == Price(input=0.10, cached=0.025, output=0.40)
    assert price_of("Qwen/Qwen3-32B") is None


def test_usages_add_up() -> None:
    total = Usage(1, 100, 64, 10, 0.5, 2, 1, "a") + Usage(2, 50, 0, 5, 0.25, 0, 0, None)
    assert total == Usage(3, 150, 64, 15, 0.75, 2, 1, "a")


def test_what_an_interrupted_run_spent_counts(tmp_path: Path) -> None:
    spend_elsewhere(tmp_path, 0.9)
    spend = Spend(budget_usd=1.0)
    spend.keep(tmp_path)
    assert spend.refusal() is None
    spend.add(Usage(cost_usd=0.1))
    assert spend.refusal() is not None
