"""What fails under the slime hook fails a sample and nothing else: the engine, the partner, a game; on an SGLang server on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slim_rl.dialogue.record import StopReason
from slim_rl.partners.limits import Breaker
from tests.backends import slime_setup
from tests.backends.slime_play import Status, play_group, record, remote, server
from tests.backends.slime_setup import Sample, check_invariant, make_args, make_group, run, serve
from tests.fakes.openai_server import OpenAIServer, Step
from tests.fakes.sglang_server import Faults

__all__ = ["server"]  # a fixture


def test_engine_faults_are_tried_again_and_leave_no_trace(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, faults=Faults(error=0.1, abort=0.1, garbage=0.05)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"engine_retry_seconds": 60}})
        samples = run(args, play_group(args, make_group(8)))
        assert {sample.status for sample in samples} == {Status.COMPLETED}
        assert len(server.requests) > 8 * 4
        for sample in samples:
            check_invariant(sample)


def test_a_turn_cut_short_is_the_policys_own_and_ends_the_game(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, faults=Faults(length=0.2)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path)
        samples = run(args, play_group(args, make_group(16)))
        cut = [sample for sample in samples if sample.status == Status.TRUNCATED]
        assert 0 < len(cut) < 16
        assert all(record(sample).stop_reason is StopReason.TURN_TOKENS and sample.reward == 0.0 for sample in cut)


@pytest.mark.parametrize(
    "faults", [Faults(error=1.0), Faults(abort=1.0), Faults(garbage=1.0)], ids=["500", "abort", "garbage"]
)
@pytest.mark.parametrize(
    "more", [{}, {"rollout_top_p": 0.9, "use_rollout_routing_replay": True}], ids=["plain", "replay"]
)
def test_a_dead_engine_fails_the_sample_and_nothing_else(tokenizer, tokenizer_dir, tmp_path, faults, more) -> None:
    with serve(tokenizer, faults=faults) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"engine_retry_seconds": 0.1}}, **more)
        samples = run(args, play_group(args, make_group(2)))
    for sample in samples:
        assert sample.status == Status.FAILED
        assert sample.remove_sample
        assert sample.reward == 0.0
        assert record(sample).stop_reason is StopReason.ENGINE_FAILED
        assert "engine" in record(sample).failure
        check_invariant(sample)
        assert not any(sample.loss_mask)
        if more:  # what slime demands of every sample of a batch
            assert len(sample.rollout_top_p_token_offsets) == sample.response_length + 1
            assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def test_a_refused_request_is_not_made_again(server, tokenizer_dir, tmp_path) -> None:
    server.context_length = 10
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [sample] = run(args, play_group(args, make_group(1)))
    assert sample.status == Status.FAILED
    assert "400" in record(sample).failure
    assert len(server.requests) == 1


def test_an_unreachable_engine_fails_the_sample(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.1}})
    [sample] = run(args, play_group(args, make_group(1)))
    assert sample.status == Status.FAILED


def test_a_broken_game_is_a_failed_sample(server, tokenizer_dir, tmp_path) -> None:
    broken = {"environment": "tests.backends.test_slime_hook_failures.BrokenGame"}
    args = make_args(tokenizer_dir, server.port, tmp_path, broken)
    [sample] = run(args, play_group(args, make_group(1)))
    assert (sample.status, record(sample).stop_reason) == (Status.FAILED, StopReason.BROKEN)
    assert "ZeroDivisionError" in record(sample).failure
    check_invariant(sample)


class BrokenGame(slime_setup.MatchingEnv):
    def step(self, text: str) -> Any:
        raise ZeroDivisionError("in the game")


def test_a_failed_sample_that_comes_back_is_played_anew(server, tokenizer_dir, tmp_path) -> None:
    dead = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.1}})
    [sample] = run(dead, play_group(dead, make_group(1)))
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [sample] = run(args, play_group(args, [sample]))
    assert (sample.status, sample.remove_sample) == (Status.COMPLETED, False)
    check_invariant(sample)


def test_a_cancelled_dialogue_is_cancelled(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, delay=5.0) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path)

        async def cancel() -> None:
            task = asyncio.create_task(play_group(args, make_group(1)))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(args, cancel())


def test_hook_failed_partner_keeps_its_cost(server, tokenizer_dir, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Breaker, "failures", 1000)

    async def work() -> list[Sample]:
        # Enough for one game; then the endpoint answers with errors for good.
        script = [*[Step()] * 4, *[Step("status", status=500)] * 200]
        async with OpenAIServer(script=script) as partner:
            args = make_args(tokenizer_dir, server.port, tmp_path, remote(partner, max_retries=1))
            first = await play_group(args, make_group(1))
            return first + await play_group(args, make_group(1, first=1))

    args = make_args(tokenizer_dir, server.port, tmp_path)
    played, failed = run(args, work())
    assert played.status == Status.COMPLETED
    assert sum(turn.usage.calls for turn in record(played).turns if turn.usage) == 4
    assert (failed.status, failed.reward, failed.remove_sample) == (Status.FAILED, 0.0, True)
    assert record(failed).stop_reason is StopReason.PARTNER_FAILED
    check_invariant(failed)


def test_failed_selfplay_is_a_list_too(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"partner": {"kind": "self"}, "slime": {"engine_retry_seconds": 0.1}})
    [[first, second]] = run(args, play_group(args, make_group(1)))
    assert first.rollout_id == second.rollout_id is not None
    for sample in (first, second):
        assert (sample.status, sample.reward, sample.remove_sample) == (Status.FAILED, 0.0, True)
        check_invariant(sample)
