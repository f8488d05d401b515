"""A game that slime's rollout aborts or cancels is played again from its first turn; one that only sees new weights goes on."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.backends import slime_setup
from tests.backends.slime_play import Status, play_and_abort, play_and_cancel, play_group, record, server
from tests.backends.slime_setup import Sample, check_invariant, make_args, make_group, run, sampling_params, serve

__all__ = ["server"]  # a fixture


def test_hook_under_slimes_own_abort_returns_aborted_samples(tokenizer, tokenizer_dir, tmp_path) -> None:
    more = {"custom_generate_function_path": "slim_rl.rollout.generate", "group_rm": False}
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, mask_offpolicy_in_partial_rollout=False, **more)

        async def work() -> tuple[list[Sample], bool]:
            rollout, state, group = slime_setup.sglang_rollout, slime_setup.state(args), make_group(1)
            state.pendings = {asyncio.create_task(rollout.generate_and_rm_group(args, group, sampling_params(args)))}
            await server.received(3)
            assert await rollout.abort(args, 0) == []
            return group, hasattr(state, "cancellable_tasks")

        [sample], cancels = run(args, work())
    assert (sample.status, sample.reward, sample.tokens) == (Status.ABORTED, None, [])
    assert (server.aborts == 0) == cancels, "a slime that cancels leaves the engine's other requests alone"


@pytest.mark.parametrize("call_off", [play_and_abort, play_and_cancel])
def test_aborted_game_is_played_again_from_its_first_turn(tokenizer, tokenizer_dir, tmp_path, call_off) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, rollout_top_p=0.9)
        [sample] = run(args, call_off(args, server, make_group(1), after_requests=3))
        assert (sample.reward, sample.tokens, sample.response_length) == (None, [], 0)
        server.requests.clear()
        server.weight_version = "1"
        [sample] = run(args, play_group(args, [sample]))
    check_invariant(sample)
    assert sample.status == Status.COMPLETED
    assert len(server.requests) == 4 and sample.weight_versions == ["1"] * 4


def test_new_weights_in_mid_game_keep_every_turn_trained(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path)

        async def update() -> Sample:
            task = asyncio.create_task(play_group(args, make_group(1)))
            await server.received(3)
            async with httpx.AsyncClient() as client:
                await client.post(f"{server.url}/update_weights_from_disk", json={"weight_version": "1"})
            return (await task)[0]

        sample = run(args, update())
    check_invariant(sample)
    assert sample.status == Status.COMPLETED
    assert sample.weight_versions == ["0", "0", "1", "1"]
    assert sample.loss_mask == record_mask(sample)


def record_mask(sample: Sample) -> list[int]:
    """1 on the spans of the policy's turns."""
    spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
    return [int(any(start <= at < end for start, end in spans)) for at in range(sample.response_length)]
