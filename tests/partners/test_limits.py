"""Rate limit and breaker on a clock of the test's own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.partners.limits import Breaker, RateLimit

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
@given(st.floats(1, 10_000), st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 100)), min_size=1, max_size=40))
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


class Outage:
    """A breaker on a clock that stands still but for the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.breaker = Breaker("partner's endpoint http://here", 60.0, lambda: self.now)
        self.breaker.failures, self.breaker.seconds = 4, 2.0

    def waits(self, events: Iterable[str | float]) -> list[float]:
        """What a call waits for after each event: open, pause, late (a failure of a call sent before), or one of `OUTAGES`' letters."""
        return [self._wait(event) for event in events]

    def _wait(self, event: str | float) -> float:
        match event:
            case "open":
                self.breaker.open("fell", "no route")
            case "pause":
                self.breaker.open("asks for a pause", "busy", 1e12)
            case "late":
                self.breaker.failure("down", object(), 99.0)
            case "!":
                self.breaker.alive(answered=True)
            case str() if event != ".":
                call = object() if event == "*" else event
                self.breaker.failure("HTTP 500", call, self.now, answered=event.isupper())
            case _:
                self.now += 1.0 if event == "." else float(event)
        return self.breaker.wait()


# A letter is a failure by the call of that name, * by one of its own, a capital one with a wrong answer; "." is a second, "!" an answer
OUTAGES = {
    "at one moment": ("*" * 50, False),
    "for some time": ("*" * 50 + "..*", True),
    "an answer in between": (".!**" * 50, False),
    "one call, however often": (".p" * 50, False),
    "and then another": (".p" * 50 + "o", True),
    "wrong answers to few": (".A.B.C" * 5, False),
    "wrong answers to many": (".A.B.C" * 5 + "D", True),
}


@pytest.mark.parametrize(("events", "is_open"), OUTAGES.values(), ids=OUTAGES)
def test_failures_of_several_calls_over_time_are_an_outage(events: str, is_open: bool) -> None:
    outage = Outage()
    outage.waits(events)
    assert outage.breaker.is_open is is_open


WAITS: list[tuple[list[str | float], list[float]]] = [
    (["open", 10, "*", 10, "!"], [10, 0, 10, 0, 0]),
    (["open", 9, "late"], [10, 1, 1]),  # sent before the outage: it delays no probe
    # a pause is over with its outage, and none sleeps through it whole
    (["pause", "!", "open", 10], [10, 0, 10, 0]),
    (["pause", 10, 10, 9, 1], [10, 10, 10, 1, 0]),  # half of the time there is, so that a probe may still help
]


@pytest.mark.parametrize(("events", "waits"), WAITS)
def test_breaker_lets_a_probe_through_after_a_pause(events: list[str | float], waits: list[float]) -> None:
    assert Outage().waits(events) == waits


def test_breaker_stops_for_good_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    outage.waits(["open", "!"])
    assert not outage.breaker.is_open and [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert outage.waits(["open", 60])[-1] == 0
    assert outage.breaker.stopped == (
        "The partner's endpoint http://here has not answered for 60 s (no route). Fix it and resume the run."
    )


@pytest.mark.parametrize(("answered", "stops"), [(None, True), (False, True), (True, False)])
def test_a_refusal_is_final_only_before_the_first_answer(answered: bool | None, stops: bool) -> None:
    one = Outage().breaker
    if answered is not None:
        one.alive(answered=answered)
    one.refused("wrong key", object(), 100.0)
    assert (one.stopped is not None) is stops and not (one.is_open and not stops)
