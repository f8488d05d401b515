"""The slime hook against an SGLang server on loopback, with slime's own classes where they can be had.

What fails fails a sample and nothing else; a game that slime aborts or cancels is played again from its first turn.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from slim_rl.dialogue.record import StopReason
from slim_rl.errors import SlimError
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.limits import Breaker
from tests.backends import slime_setup
from tests.backends.slime_setup import (
    Sample,
    Status,
    check_invariant,
    make_args,
    make_group,
    play_and_abort,
    play_and_cancel,
    play_group,
    record,
    remote,
    run,
    sampling_params,
    serve,
    server,
)
from tests.fakes.openai_server import OpenAIServer, Step
from tests.fakes.sglang_server import Faults

from slim_rl.rollout import generate  # isort: skip  (after slime is made importable)

__all__ = ["server"]  # a fixture
DEAD = 9  # a port at which nothing answers
BRIEF = {"slime": {"engine_retry_seconds": 0.1}}
REPLAY = {"rollout_top_p": 0.9, "use_rollout_routing_replay": True}
Make = Callable[..., Any]


@pytest.fixture
def args_of(tokenizer_dir: Path, tmp_path: Path) -> Make:
    """slime's arguments of a run against the engine at a port."""
    return lambda port, config=None, **more: make_args(tokenizer_dir, port, tmp_path, config, **more)


@pytest.fixture
def play(args_of: Make) -> Make:
    """play(port, group, config, **arguments of slime): a group, or so many samples of one, played to the end."""

    def played(port: int, group: Any = 1, config: Any = None, params: Any = None, **more: Any) -> list[Any]:
        args = args_of(port, config, **more)
        group = make_group(group) if isinstance(group, int) else group
        return run(args, play_group(args, group, **(params or {})))

    return played


def test_a_played_game_is_one_sample_with_its_prefix_cached(server, tokenizer, play) -> None:
    for sample in play(server.port, 4):
        check_invariant(sample)
        dialogue = record(sample)
        assert (sample.status, dialogue.stop_reason) == (Status.COMPLETED, StopReason.AGREED)
        assert 0.0 < sample.reward <= 1.0 and not sample.remove_sample
        spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
        assert [i for i, mask in enumerate(sample.loss_mask) if mask] == [i for a, b in spans for i in range(a, b)]
        assert sample.response == tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])
        for turn in dialogue.turns[:-1]:  # the partner's last word comes after the policy's last token
            assert turn.text.split("\n")[0] in sample.response
        assert sample.non_generation_time == sum(t.seconds for t in dialogue.turns if t.role == "partner") > 0
        inputs = [len(call["input_ids"]) for call in server.requests if call["key"] == sample.session_id]
        assert len(inputs) == len(spans) == 4 and sample.prefix_cache_info.total_prompt_tokens == sum(inputs)
        # of every later turn: all of the previous input and of what was sampled after it
        could = sum(n + e - b for n, (b, e) in zip(inputs[:-1], spans[:-1], strict=True))
        assert sample.prefix_cache_info.cached_tokens >= could


def test_stop_tokens_and_limits_of_a_request(server, tokenizer, play) -> None:
    play(server.port, params={"stop_token_ids": [7]}, rollout_max_response_len=300, router_policy="cache_aware")
    for call in server.requests:
        assert {7, tokenizer.convert_tokens_to_ids("<|im_end|>")} <= set(call["sampling_params"]["stop_token_ids"])
        assert call["sampling_params"]["max_new_tokens"] <= 200 and call["return_logprob"] is True
        assert call["key"] is None, "the routing key is sent only where the router hashes"


@pytest.mark.parametrize(
    ("context", "more", "reason"),
    [
        (8000, {"rollout_max_response_len": 120}, StopReason.DIALOGUE_TOKENS),
        (60, {}, StopReason.CONTEXT_LENGTH),
        (8000, {"config": {"limits": {"turn_tokens": 5}}}, StopReason.TURN_TOKENS),
    ],
)
def test_limits_end_a_dialogue_and_leave_it_truncated(server, play, context: int, more: Any, reason: Any) -> None:
    [whole] = play(server.port)
    prompt_length = len(whole.tokens) - whole.response_length
    server.context_length = prompt_length + 120  # a request beyond any of these limits would be refused
    [sample] = play(server.port, rollout_max_context_len=prompt_length + context, **more)
    assert (record(sample).stop_reason, sample.status, sample.reward) == (reason, Status.TRUNCATED, 0.0)
    assert sample.response_length <= more.get("rollout_max_response_len", 4000)
    assert len(sample.tokens) <= prompt_length + context
    check_invariant(sample)


def test_evaluation_shares_its_parameters_and_has_no_session(server, args_of) -> None:
    args, group = args_of(server.port, eval_max_context_len=9000), make_group()
    for sample in group:
        sample.session_id = None
    shared = sampling_params(args)
    before = copy.deepcopy(shared)

    async def evaluate() -> None:
        await asyncio.gather(*(generate(args, sample, shared, evaluation=True) for sample in group))

    run(args, evaluate())
    assert shared == before and len({request["key"] for request in server.requests}) == 4
    assert {record(sample).phase for sample in group} == {"eval"}


def test_top_p_sets_and_routed_experts_stay_aligned(server, play) -> None:
    [sample] = play(server.port, **REPLAY)
    check_invariant(sample)
    offsets = [int(offset) for offset in sample.rollout_top_p_token_offsets]
    assert len(offsets) == sample.response_length + 1
    ids = [int(token) for token in sample.rollout_top_p_token_ids]
    start = len(sample.tokens) - sample.response_length
    for i, mask in enumerate(sample.loss_mask):
        kept = ids[offsets[i] : offsets[i + 1]]
        assert (sample.tokens[start + i] in kept) if mask else kept == []
    assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def test_deterministic_inference_plays_the_same_game_again(server, play) -> None:
    first, again, other = (play(server.port, params={"sampling_seed": seed})[0].tokens for seed in (5, 5, 6))
    assert first == again != other


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"slim_rl": {"gmae": {}}}, "gmae"),
        ({"slim_rl": None}, "--custom-config-path"),
        ({"partial_rollout": True}, "--partial-rollout is refused: .*again from its first turn.*; leave it out"),
        ({"group_rm": True}, "--group-rm is refused: .*overwrite the games' rewards.*; leave it out"),
        ({"metadata": {}}, "--metadata-key"),
    ],
)
def test_hook_unusable_argument_or_row_is_refused(server, args_of, wrong: dict[str, Any], says: str) -> None:
    args, group = args_of(server.port), make_group(1)
    vars(args).update(wrong)
    group[0].metadata = wrong.get("metadata", group[0].metadata)
    with pytest.raises(SlimError, match=says):
        run(args, play_group(args, group))


@pytest.mark.parametrize("plays", [True, False])
def test_selfplay_gives_one_sample_a_seat(server, play, plays: bool) -> None:
    games = play(server.port if plays else DEAD, 3, {"partner": {"kind": "self"}, **BRIEF})
    assert [len(game) for game in games] == [2, 2, 2] and len({game[0].rollout_id for game in games}) == 3
    for first, second in games:
        assert first.rollout_id == second.rollout_id is not None and first.session_id != second.session_id
        assert [record(sample).seat for sample in (first, second)] == [0, 1]
        assert first.reward == second.reward and (first.reward > 0) == plays
        for sample in () if plays else (first, second):
            check_failed(sample, StopReason.ENGINE_FAILED, "")


def test_a_new_start_keeps_what_slime_gave(server, play) -> None:
    given = {
        "multimodal_inputs": {"images": ["a board"]},
        "multimodal_train_inputs": {"pixel_values": [1.0]},
        "multimodal_train_input_id": "m7",
        "apply_chat_template_kwargs": {"enable_thinking": False},
    }
    for port, status in ((server.port, Status.COMPLETED), (DEAD, Status.FAILED)):
        [sample] = make_group(1)
        vars(sample).update(given)
        [sample] = play(port, [sample], BRIEF)
        assert sample.status == status and {name: getattr(sample, name) for name in given} == given


# --- aborted or cancelled


def test_hook_under_slimes_own_abort_returns_aborted_samples(tokenizer, args_of) -> None:
    more = {"custom_generate_function_path": "slim_rl.rollout.generate", "group_rm": False}
    with serve(tokenizer, hold=[3]) as server:
        args = args_of(server.port, mask_offpolicy_in_partial_rollout=False, **more)

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
def test_aborted_game_is_played_again_from_its_first_turn(tokenizer, args_of, play, call_off) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = args_of(server.port, rollout_top_p=0.9)
        [sample] = run(args, call_off(args, server, make_group(1), after_requests=3))
        assert (sample.reward, sample.tokens, sample.response_length) == (None, [], 0)
        server.requests.clear()
        server.weight_version = "1"
        [sample] = play(server.port, [sample], rollout_top_p=0.9)
    check_invariant(sample)
    assert sample.status == Status.COMPLETED
    assert len(server.requests) == 4 and sample.weight_versions == ["1"] * 4


def test_new_weights_in_mid_game_keep_every_turn_trained(tokenizer, args_of) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = args_of(server.port)

        async def update() -> Sample:
            task = asyncio.create_task(play_group(args, make_group(1)))
            await server.received(3)
            async with httpx.AsyncClient() as client:
                await client.post(f"{server.url}/update_weights_from_disk", json={"weight_version": "1"})
            return (await task)[0]

        sample = run(args, update())
    check_invariant(sample)
    assert (sample.status, sample.weight_versions) == (Status.COMPLETED, ["0", "0", "1", "1"])
    spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
    whole = [int(any(start <= at < end for start, end in spans)) for at in range(sample.response_length)]
    assert sample.loss_mask == whole


# --- failures


def check_failed(sample: Any, reason: StopReason, failure: str) -> None:
    check_invariant(sample)
    assert (sample.status, sample.reward, sample.remove_sample) == (Status.FAILED, 0.0, True)
    assert record(sample).stop_reason is reason and failure in record(sample).failure
    assert not any(sample.loss_mask)


def test_engine_faults_are_tried_again_and_leave_no_trace(tokenizer, play) -> None:
    with serve(tokenizer, faults=Faults(error=0.1, abort=0.1, garbage=0.05)) as server:
        samples = play(server.port, 8, {"slime": {"engine_retry_seconds": 60}})
        assert {sample.status for sample in samples} == {Status.COMPLETED} and len(server.requests) > 8 * 4
        for sample in samples:
            check_invariant(sample)


def test_a_turn_cut_short_is_the_policys_own_and_ends_the_game(tokenizer, play) -> None:
    with serve(tokenizer, faults=Faults(length=0.2)) as server:
        cut = [sample for sample in play(server.port, 16) if sample.status == Status.TRUNCATED]
    assert 0 < len(cut) < 16
    assert all(record(sample).stop_reason is StopReason.TURN_TOKENS and sample.reward == 0.0 for sample in cut)


@pytest.mark.parametrize("fault", ["error", "abort", "garbage"])
@pytest.mark.parametrize("more", [{}, REPLAY], ids=["plain", "replay"])
def test_a_dead_engine_fails_the_sample_and_nothing_else(tokenizer, play, fault: str, more: dict[str, Any]) -> None:
    with serve(tokenizer, faults=Faults(**{fault: 1.0})) as server:
        for sample in play(server.port, 2, BRIEF, **more):
            check_failed(sample, StopReason.ENGINE_FAILED, "engine")
            if more:  # what slime demands of every sample of a batch
                assert len(sample.rollout_top_p_token_offsets) == sample.response_length + 1
                assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def test_a_refused_request_is_not_made_again(server, play) -> None:
    server.context_length = 10
    [sample] = play(server.port)
    check_failed(sample, StopReason.ENGINE_FAILED, "400")
    assert len(server.requests) == 1


class BrokenGame(slime_setup.MatchingEnv):
    def step(self, text: str) -> Any:
        raise ZeroDivisionError("in the game")


def test_a_broken_game_is_a_failed_sample(server, play) -> None:
    [sample] = play(server.port, 1, {"environment": f"{__name__}.BrokenGame"})
    check_failed(sample, StopReason.BROKEN, "ZeroDivisionError")


def test_a_failed_sample_that_comes_back_is_played_anew(server, play) -> None:
    [sample] = play(DEAD, 1, BRIEF)
    check_failed(sample, StopReason.ENGINE_FAILED, "")
    [sample] = play(server.port, [sample])
    assert (sample.status, sample.remove_sample) == (Status.COMPLETED, False)
    check_invariant(sample)


def test_hook_failed_partner_keeps_its_cost(server, args_of, monkeypatch) -> None:
    monkeypatch.setattr(Breaker, "failures", 1000)
    monkeypatch.setattr(Endpoint, "first_wait", 0.01)

    async def work() -> list[Sample]:
        # Enough for one game; then the endpoint answers with errors for good.
        script = [*[Step()] * 4, *[Step("status", status=500)] * 200]
        async with OpenAIServer(script=script) as partner:
            args = args_of(server.port, remote(partner, max_retries=1))
            first = await play_group(args, make_group(1))
            return first + await play_group(args, make_group(1, first=1))

    played, failed = run(args_of(server.port), work())
    assert played.status == Status.COMPLETED
    assert sum(turn.usage.calls for turn in record(played).turns if turn.usage) == 4
    check_failed(failed, StopReason.PARTNER_FAILED, "")
