"""The slime hook against an SGLang server on loopback, with slime's own classes where they can be had.

What fails fails a sample and nothing else; a game that slime aborts or cancels is played again from its first turn.
"""

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from slim_rl.dialogue.record import StopReason
from slim_rl.errors import SlimError
from slim_rl.games.matching import MatchingEnv
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.limits import Breaker
from tests.backends.slime_setup import Sample, Status, check_invariant, make_args, make_group, play_group

from tests.backends.slime_setup import record, run, sampling_params, serve  # isort: skip
from tests.fakes.openai_server import OpenAIServer, Step
from tests.fakes.sglang_server import Faults

from slime.rollout import sglang_rollout  # isort: skip
from slim_rl.rollout import generate  # isort: skip  (after slime is made importable)

DEAD = 9  # a port at which nothing answers
BRIEF = {"slime": {"engine_retry_seconds": 0.1}}
SELF = BRIEF | {"partner": {"kind": "self"}}
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
        return run(args, play_group(args, make_group(group) if isinstance(group, int) else group, **(params or {})))

    return played


def test_a_played_game_is_one_sample_with_its_prefix_cached(server, tokenizer, play) -> None:
    for sample in play(server.port, 4):
        check_invariant(sample)
        dialogue = record(sample)
        assert (sample.status, dialogue.stop_reason) == (Status.COMPLETED, StopReason.AGREED)
        assert 0.0 < sample.reward <= 1.0 and not sample.remove_sample
        assert sample.response == tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])
        assert sample.non_generation_time == sum(t.seconds for t in dialogue.turns if t.role == "partner") > 0
        spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
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


def test_slimes_context_limit_leaves_a_dialogue_truncated(server, play) -> None:
    [whole] = play(server.port)
    prompt_length = len(whole.tokens) - whole.response_length
    server.context_length = prompt_length + 120  # a request beyond the limit would be refused
    [sample] = play(server.port, rollout_max_context_len=prompt_length + 60)
    assert (record(sample).stop_reason, sample.status) == (StopReason.CONTEXT_LENGTH, Status.TRUNCATED)
    assert len(sample.tokens) <= prompt_length + 60 and sample.reward == 0.0
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


def test_selfplay_gives_one_sample_a_seat(play) -> None:
    """That their game can be played too is in `test_invariants` and in the goldens."""
    games = play(DEAD, 3, SELF)
    assert [len(game) for game in games] == [2, 2, 2] and len({game[0].rollout_id for game in games}) == 3
    for first, second in games:
        assert first.rollout_id == second.rollout_id is not None and first.session_id != second.session_id
        for seat, sample in enumerate((first, second)):
            check_failed(sample, StopReason.ENGINE_FAILED, "")
            assert record(sample).seat == seat


def test_a_new_start_keeps_what_slime_gave(server, play) -> None:
    given = {
        "multimodal_inputs": {"images": ["a board"]}, "multimodal_train_inputs": {"pixel_values": [1.0]},
        "multimodal_train_input_id": "m7", "apply_chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    [sample] = make_group(1)
    vars(sample).update(given)
    for port, status in ((DEAD, Status.FAILED), (server.port, Status.COMPLETED)):
        [sample] = play(port, [sample], BRIEF)
        check_invariant(sample)
        assert (sample.status, sample.remove_sample) == (status, status == Status.FAILED)
        assert {name: getattr(sample, name) for name in given} == given


# --- aborted or cancelled


def test_hook_under_slimes_own_abort_returns_aborted_samples(tokenizer, args_of) -> None:
    more = {"custom_generate_function_path": "slim_rl.rollout.generate", "group_rm": False}
    with serve(tokenizer, hold=[3]) as server:
        args = args_of(server.port, mask_offpolicy_in_partial_rollout=False, **more)

        async def work() -> tuple[list[Sample], bool]:
            rollout, state, group = sglang_rollout, sglang_rollout.GenerateState(args), make_group(1)
            state.pendings = {asyncio.create_task(rollout.generate_and_rm_group(args, group, sampling_params(args)))}
            await server.received(3)
            assert await rollout.abort(args, 0) == []
            return group, hasattr(state, "cancellable_tasks")

        [sample], cancels = run(args, work())
    assert (sample.status, sample.reward, sample.tokens) == (Status.ABORTED, None, [])
    assert (server.aborts == 0) == cancels, "a slime that cancels leaves the engine's other requests alone"


@pytest.mark.parametrize("cancelled", [False, True])
def test_aborted_game_is_played_again_from_its_first_turn(tokenizer, args_of, play, cancelled: bool) -> None:
    """Aborted as slime does it: the flag first, then the engine; from v0.3.2 on it cancels what plays the game."""
    [sample] = make_group(1)
    with serve(tokenizer, hold=[3]) as server:
        args = args_of(server.port, rollout_top_p=0.9)

        async def call_off() -> None:
            task = asyncio.create_task(generate(args, sample, sampling_params(args)))
            await server.received(3)
            if cancelled:
                task.cancel()
            else:
                sglang_rollout.GenerateState(args).aborted = True
                async with httpx.AsyncClient() as client:
                    await client.post(f"{server.url}/abort_request", json={"abort_all": True})
            await asyncio.wait([task])
            assert task.cancelled() == cancelled

        run(args, call_off())
        assert (sample.reward, sample.tokens, sample.response_length) == (None, [], 0)
        server.requests.clear()
        server.weight_version = "1"
        play(server.port, [sample], rollout_top_p=0.9)
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


class BrokenGame(MatchingEnv):
    def step(self, text: str) -> Any:
        raise ZeroDivisionError("in the game")


@pytest.mark.parametrize("more", [{}, REPLAY], ids=["plain", "replay"])
@pytest.mark.parametrize(
    ("engine", "config", "reason", "failure"),
    [
        ({"faults": Faults(error=1.0)}, BRIEF, StopReason.ENGINE_FAILED, "engine"),
        ({"faults": Faults(abort=1.0)}, BRIEF, StopReason.ENGINE_FAILED, "engine"),
        ({"faults": Faults(garbage=1.0)}, BRIEF, StopReason.ENGINE_FAILED, "engine"),
        ({"context_length": 10}, None, StopReason.ENGINE_FAILED, "400"),
        ({}, {"environment": f"{__name__}.BrokenGame"}, StopReason.BROKEN, "ZeroDivisionError"),
    ],
    ids=["error", "abort", "garbage", "refused", "broken game"],
)
def test_what_fails_fails_the_sample_and_nothing_else(
    tokenizer, play, engine: Any, config: Any, reason: StopReason, failure: str, more: dict[str, Any]
) -> None:
    with serve(tokenizer, **engine) as server:
        for sample in play(server.port, 2, config, **more):
            check_failed(sample, reason, failure)
            if more:  # what slime demands of every sample of a batch
                assert len(sample.rollout_top_p_token_offsets) == sample.response_length + 1
                assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1
        assert failure != "400" or len(server.requests) == 2, "a refused request is not made again"


def test_hook_failed_partner_keeps_its_cost(server, args_of, monkeypatch) -> None:
    monkeypatch.setattr(Breaker, "failures", 1000)
    monkeypatch.setattr(Endpoint, "first_wait", 0.01)

    async def work() -> list[Sample]:
        # Enough for one game; then the endpoint answers with errors for good.
        async with OpenAIServer(script=[*[Step()] * 4, *[Step("status", status=500)] * 200]) as partner:
            openai = {"model": partner.model, "base_url": partner.url, "max_retries": 1}
            args = args_of(server.port, {"partner": {"kind": "openai", "openai": openai}})
            first = await play_group(args, make_group(1))
            return first + await play_group(args, make_group(1, first=1))

    played, failed = run(args_of(server.port), work())
    assert played.status == Status.COMPLETED
    assert sum(turn.usage.calls for turn in record(played).turns if turn.usage) == 4
    check_failed(failed, StopReason.PARTNER_FAILED, "")
