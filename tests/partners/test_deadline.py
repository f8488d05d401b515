"""A dialogue's deadline counts its own time: what the partner's endpoint keeps it waiting for ends no dialogue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.deadline import Deadline, not_counted
from slim_rl.dialogue.loop import Speaker, play_dialogue
from slim_rl.dialogue.partner import Partner, Reply
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import GAME, GOOD_PLAN, QUESTION, partner_of, view_after

OWN_SECONDS = 2.0  # long enough that a busy machine alone does not use it up


class Asks:
    """A player that asks `questions` times and then proposes, after thinking for a while each time."""

    identity: ClassVar[dict[str, Any]] = {"kind": "asks"}

    def __init__(self, questions: int = 3, thinks: float = 0.0) -> None:
        self.questions, self.thinks = questions, thinks

    async def reply(self, view: View) -> Reply:
        await asyncio.sleep(self.thinks)
        return Reply(QUESTION if len(view.history) < 2 * self.questions else GOOD_PLAN)


async def play(partner: Partner, player: Asks, seconds: float | None = OWN_SECONDS, seed: int = 7) -> Dialogue:
    limits = Limits(seconds=seconds)
    return await play_dialogue(
        MatchingEnv(), Speaker(player), partner, None, limits, game_state=GAME, id=f"g#{seed}", seed=seed
    )


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        await partner_of(running).reply(
            view_after(QUESTION)
        )  # the first call loads the client, which takes a second of everyone's
        yield running


async def test_an_outage_in_mid_dialogue_ends_no_dialogue(server: OpenAIServer) -> None:
    partner = partner_of(server, outage_failures=2, outage_seconds=0.0)
    server.script.extend([Step(), Step()])  # type: ignore[attr-defined]
    playing = asyncio.gather(*(play(partner, Asks(thinks=0.1 * OWN_SECONDS), seed=seed) for seed in range(4)))
    await asyncio.sleep(0.05)
    server.down = True
    await asyncio.sleep(1.5 * OWN_SECONDS)
    assert not playing.done()
    server.down = False
    dialogues = await asyncio.wait_for(playing, 10)
    assert {dialogue.stop_reason for dialogue in dialogues} == {StopReason.AGREED}
    assert min(dialogue.seconds for dialogue in dialogues) > OWN_SECONDS, "the record has the wall time"


WAITS: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "a slow answer": ([Step(seconds=1.2 * OWN_SECONDS)], {}),
    "a busy endpoint": ([Step("status", status=429, retry_after=1.2 * OWN_SECONDS)], {}),
    "failing requests": ([Step("hang")] * 2, {"request_seconds": 0.6 * OWN_SECONDS}),
    "the rate limit": ([], {"requests_per_minute": 120 / OWN_SECONDS}),
}


@pytest.mark.parametrize(("script", "settings"), WAITS.values(), ids=WAITS)
async def test_waiting_for_the_endpoint_ends_no_dialogue(
    server: OpenAIServer, script: list[Step], settings: dict[str, Any]
) -> None:
    server.script.extend(script)  # type: ignore[attr-defined]
    dialogue = await play(partner_of(server, **settings), Asks())
    assert dialogue.stop_reason is StopReason.AGREED, dialogue.failure
    assert dialogue.seconds > OWN_SECONDS


async def test_those_that_ask_most_are_not_the_ones_that_fail(server: OpenAIServer) -> None:
    """Sixteen dialogues behind one slot: each waits for the others' answers, the longer the more it asks."""
    server.meets = lambda body: Step(seconds=0.06)
    partner = partner_of(server, concurrency=1)
    dialogues = await asyncio.gather(*(play(partner, Asks(seed % 8), seed=seed) for seed in range(16)))
    assert {dialogue.stop_reason for dialogue in dialogues} == {StopReason.AGREED}
    assert max(dialogue.seconds for dialogue in dialogues) > OWN_SECONDS


async def test_a_slow_policy_ends_its_dialogue(server: OpenAIServer) -> None:
    began = time.monotonic()
    dialogue = await play(partner_of(server), Asks(thinks=OWN_SECONDS * 0.7))
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.DEADLINE, None)
    assert dialogue.failure == f"longer than {OWN_SECONDS} s, the partner's waits left out"
    assert time.monotonic() - began < 3 * OWN_SECONDS


async def test_what_was_used_before_an_outage_stays_used(server: OpenAIServer) -> None:
    server.script.extend([Step(seconds=1.2 * OWN_SECONDS)])  # type: ignore[attr-defined]
    dialogue = await play(partner_of(server), Asks(thinks=OWN_SECONDS * 0.7))
    assert dialogue.stop_reason is StopReason.DEADLINE
    assert len(dialogue.turns) == 2, "it ended while it thought for the second time"


async def test_a_partner_in_this_process_is_on_the_clock() -> None:
    class Hangs(Asks):
        async def reply(self, view: View) -> Reply:
            await asyncio.sleep(3600)
            raise AssertionError

    dialogue = await play(Hangs(), Asks(), 0.05)
    assert dialogue.stop_reason is StopReason.DEADLINE


async def test_the_clock_stands_still_only_within_the_block() -> None:
    async def other() -> None:
        with not_counted():
            await asyncio.sleep(0.2)

    async with Deadline(0.1) as deadline:
        with not_counted():
            with not_counted():
                await asyncio.sleep(0.1)
            await asyncio.create_task(other())  # as slime's hook asks a partner
        assert not deadline.expired
    with pytest.raises(TimeoutError):
        async with Deadline(0.1) as deadline:
            await other()
            await asyncio.sleep(0.2)
    assert deadline.expired


async def test_a_reply_that_outlives_its_dialogue_stops_no_clock() -> None:
    async def late() -> None:
        with not_counted():
            await asyncio.sleep(0.05)

    async with Deadline(5.0):
        straggler = asyncio.create_task(late())
        await asyncio.sleep(0)
    await straggler
    with not_counted():  # outside any dialogue
        pass
