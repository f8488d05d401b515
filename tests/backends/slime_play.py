"""How the tests of the slime hook play groups of games: to their end, or until slime calls them off."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from slim_rl.dialogue.record import Dialogue
from tests.backends import slime_setup
from tests.backends.slime_setup import Sample, sampling_params, serve
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.sglang_server import SGLangServer

from slim_rl.rollout import generate  # isort: skip  (after slime is made importable)


Status = Sample.Status


@pytest.fixture
def server(tokenizer: Any):  # type: ignore[no-untyped-def]
    with serve(tokenizer) as running:
        yield running


async def play_group(args: Any, group: list[Sample], evaluation: bool = False, **params: Any) -> list[Any]:
    """As slime plays a group: side by side, each with a copy of the parameters (in evaluation: all with the same dict)."""
    shared = sampling_params(args, **params)
    return await asyncio.gather(
        *(generate(args, s, shared if evaluation else dict(shared), evaluation=evaluation) for s in group)
    )


def record(sample: Sample) -> Dialogue:
    return Dialogue.from_dict(sample.metadata["dialogue"])


async def play_and_abort(args: Any, server: SGLangServer, group: list[Sample], after_requests: int) -> list[Any]:
    """Calls the rollout off as slime does: the flag first, then the engine, then wait for all."""
    tasks = [asyncio.create_task(generate(args, sample, sampling_params(args))) for sample in group]
    await server.received(after_requests)
    slime_setup.state(args).aborted = True
    async with httpx.AsyncClient() as client:
        await client.post(f"{server.url}/abort_request", json={"abort_all": True})
    return await asyncio.gather(*tasks)


async def play_and_cancel(args: Any, server: SGLangServer, group: list[Sample], after_requests: int) -> list[Any]:
    """Calls the rollout off by cancelling what plays it, as slime does from v0.3.2 on."""
    tasks = [asyncio.create_task(generate(args, sample, sampling_params(args))) for sample in group]
    await server.received(after_requests)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    return group


def remote(partner: OpenAIServer, **more: Any) -> dict[str, Any]:
    """A config with a partner behind an endpoint."""
    openai = {"model": partner.model, "base_url": partner.url, **more}
    return {"partner": {"kind": "openai", "openai": openai}}
