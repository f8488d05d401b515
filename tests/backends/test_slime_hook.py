"""The slime hook against an SGLang server on loopback, with slime's own classes where they can be had."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import httpx
import pytest

from examples.secret_number import SecretNumber, reward
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import ConfigError, DataError
from tests.backends import slime_setup
from tests.backends.slime_setup import Sample, check_invariant, make_args, make_group, run, sampling_params, serve
from tests.fakes.openai_server import OpenAIServer, Step
from tests.fakes.sglang_server import Faults, SGLangServer

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


def test_a_played_game_is_one_sample_with_the_invariant(server, tokenizer, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path)
    for sample in run(args, play_group(args, make_group())):
        check_invariant(sample)
        assert sample.status == Status.COMPLETED
        dialogue = record(sample)
        assert dialogue.stop_reason is StopReason.AGREED
        assert 0.0 < sample.reward <= 1.0
        assert not sample.remove_sample
        # The mask is 1 exactly on the spans that were sampled, which are the policy's turns.
        spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
        assert [i for i, mask in enumerate(sample.loss_mask) if mask] == [i for a, b in spans for i in range(a, b)]
        # Every engine call was given a beginning of the final tokens, and what it answered stands in them with its logprobs.
        calls = slime_setup.sampled_ids(server, sample.session_id)
        assert len(calls) == len(spans) == 4
        start = len(sample.tokens) - sample.response_length
        for call, (begin, _) in zip(calls, spans, strict=True):
            assert call["input_ids"] == sample.tokens[: start + begin]
        # The record tells what the tokens tell.
        assert sample.response == tokenizer.decode(sample.tokens[start:])
        for turn in dialogue.turns[:-1]:  # the partner's last word comes after the policy's last token
            assert turn.text.split("\n")[0] in sample.response
        assert sample.non_generation_time == sum(t.seconds for t in dialogue.turns if t.role == "partner") > 0


def test_the_prefix_of_every_later_turn_is_cached(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [sample] = run(args, play_group(args, make_group(1)))
    calls = slime_setup.sampled_ids(server, sample.session_id)
    inputs = [len(call["input_ids"]) for call in calls]
    assert sample.prefix_cache_info.total_prompt_tokens == sum(inputs)
    spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
    sampled_before = [inputs[0] + end - begin - 0 for begin, end in spans[:1]]
    assert sampled_before[0] <= inputs[1]
    # All of the previous input and of what was sampled after it.
    could = sum(n + e - b for n, (b, e) in zip(inputs[:-1], spans[:-1], strict=True))
    assert sample.prefix_cache_info.cached_tokens == could


def test_stop_tokens_and_limits_of_a_request(server, tokenizer, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, rollout_max_response_len=300)
    run(args, play_group(args, make_group(1), stop_token_ids=[7]))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for call in server.requests:
        assert {7, end} <= set(call["sampling_params"]["stop_token_ids"])
        assert call["sampling_params"]["max_new_tokens"] <= 200
        assert call["return_logprob"] is True


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rollout_max_response_len": 120}, StopReason.DIALOGUE_TOKENS),
        ({"context": 60}, StopReason.CONTEXT_LENGTH),
        ({"slim_rl": {"limits": {"turn_tokens": 5}}}, StopReason.TURN_TOKENS),
    ],
)
def test_limits_end_a_dialogue_and_leave_it_truncated(server, tokenizer_dir, tmp_path, settings, reason) -> None:
    settings = dict(settings)
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [whole] = run(args, play_group(args, make_group(1)))
    prompt_length = len(whole.tokens) - whole.response_length
    if "context" in settings:
        settings["rollout_max_context_len"] = prompt_length + settings.pop("context")
    args = make_args(tokenizer_dir, server.port, tmp_path, **settings)
    server.context_length = prompt_length + 120  # a request beyond any of these limits would be refused
    server.requests.clear()
    [sample] = run(args, play_group(args, make_group(1)))
    assert (record(sample).stop_reason, sample.status, sample.reward) == (reason, Status.TRUNCATED, 0.0)
    assert sample.response_length <= args.rollout_max_response_len
    assert len(sample.tokens) <= args.rollout_max_context_len
    check_invariant(sample)


def test_evaluation_shares_its_parameters_and_has_no_session(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, eval_max_context_len=9000)
    group = make_group()
    for sample in group:
        sample.session_id = None
    shared = sampling_params(args)
    before = copy.deepcopy(shared)

    async def evaluate() -> None:
        await asyncio.gather(*(generate(args, sample, shared, evaluation=True) for sample in group))

    run(args, evaluate())
    assert shared == before
    assert len({request["key"] for request in server.requests}) == 4
    assert {record(sample).phase for sample in group} == {"eval"}


def test_the_routing_key_is_sent_only_where_the_router_hashes(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, router_policy="cache_aware")
    run(args, play_group(args, make_group(1)))
    assert {request["key"] for request in server.requests} == {None}


def test_top_p_sets_and_routed_experts_stay_aligned(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, rollout_top_p=0.9, use_rollout_routing_replay=True)
    [sample] = run(args, play_group(args, make_group(1)))
    check_invariant(sample)
    offsets = [int(offset) for offset in sample.rollout_top_p_token_offsets]
    assert len(offsets) == sample.response_length + 1
    ids = [int(token) for token in sample.rollout_top_p_token_ids]
    start = len(sample.tokens) - sample.response_length
    for i, mask in enumerate(sample.loss_mask):
        kept = ids[offsets[i] : offsets[i + 1]]
        assert (sample.tokens[start + i] in kept) if mask else kept == []
    assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def test_deterministic_inference_plays_the_same_game_again(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path)
    first, again = (run(args, play_group(args, make_group(1), sampling_seed=5))[0] for _ in range(2))
    [other] = run(args, play_group(args, make_group(1), sampling_seed=6))
    assert first.tokens == again.tokens != other.tokens
    seeds = [request["sampling_params"]["sampling_seed"] for request in server.requests[:4]]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)


# ------------------------------------------------------------------------------------------------------------- failures
def test_engine_faults_are_tried_again_and_leave_no_trace(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, faults=Faults(error=0.1, abort=0.1, garbage=0.05)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"engine_patience": 60}})
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
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"engine_patience": 0.1}}, **more)
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


async def play_over_slimes_client(args: Any, group: list[Sample]) -> list[Any]:
    args.use_distributed_post = True  # only now: slime's client is open, and needs no Ray
    return await play_group(args, group)


def test_requests_may_go_over_slimes_own_client(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, faults=Faults(error=0.2)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"engine_patience": 60}})
        samples = run(args, play_over_slimes_client(args, make_group(2)))
    assert {sample.status for sample in samples} == {Status.COMPLETED}


@pytest.mark.parametrize("play", [play_group, play_over_slimes_client])
def test_a_refused_request_is_not_made_again(server, tokenizer_dir, tmp_path, play) -> None:
    server.context_length = 10
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [sample] = run(args, play(args, make_group(1)))
    assert sample.status == Status.FAILED
    assert "400" in record(sample).failure
    assert len(server.requests) == 1


def test_an_unreachable_engine_fails_the_sample(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_patience": 0.1}})
    [sample] = run(args, play_group(args, make_group(1)))
    assert sample.status == Status.FAILED


def test_a_broken_game_is_a_failed_sample(server, tokenizer_dir, tmp_path) -> None:
    broken = {"environment": "tests.backends.test_slime_hook.BrokenGame"}
    args = make_args(tokenizer_dir, server.port, tmp_path, broken)
    [sample] = run(args, play_group(args, make_group(1)))
    assert (sample.status, record(sample).stop_reason) == (Status.FAILED, StopReason.BROKEN)
    assert "ZeroDivisionError" in record(sample).failure
    check_invariant(sample)


class BrokenGame(slime_setup.MatchingEnv):
    def step(self, text: str) -> Any:
        raise ZeroDivisionError("in the game")


def test_a_failed_sample_that_comes_back_is_played_anew(server, tokenizer_dir, tmp_path) -> None:
    dead = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_patience": 0.1}})
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


# ----------------------------------------------------------------------------------------------------- what stops a run
def test_a_wrong_config_and_a_row_without_a_game_are_told_in_a_sentence(server, tokenizer_dir, tmp_path) -> None:
    for wrong, said in [
        ({"slim_rl": {"gmae": {}}}, "gmae"),
        ({"slim_rl": None}, "--custom-config-path"),
    ]:
        args = make_args(tokenizer_dir, server.port, tmp_path)
        vars(args).update(wrong)
        with pytest.raises(ConfigError, match=said):
            run(args, play_group(args, make_group(1)))
    args = make_args(tokenizer_dir, server.port, tmp_path, {"partner": {"kind": "self"}}, partial_rollout=True)
    with pytest.raises(ConfigError, match="partial"):
        run(args, play_group(args, make_group(1)))
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [bare] = make_group(1)
    bare.metadata = {}
    with pytest.raises(DataError, match="--metadata-key"):
        run(args, play_group(args, [bare]))


# ---------------------------------------------------------------------------------------------------- abort and resuming
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


def test_slimes_own_abort_keeps_the_turns_that_were_played(tokenizer, tokenizer_dir, tmp_path) -> None:
    more = {"custom_generate_function_path": "slim_rl.rollout.generate", "group_rm": False, "partial_rollout": True}
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, mask_offpolicy_in_partial_rollout=False, **more)

        async def work() -> tuple[list[list[Sample]], bool]:
            rollout, state = slime_setup.sglang_rollout, slime_setup.state(args)
            playing = rollout.generate_and_rm_group(args, make_group(1), sampling_params(args))
            state.pendings = {asyncio.create_task(playing)}
            await server.received(3)
            return await rollout.abort(args, 0), hasattr(state, "cancellable_tasks")

        [[sample]], cancels = run(args, work())
    assert sample.status == Status.ABORTED and sample.reward is None
    assert [turn.role for turn in record(sample).turns] == ["policy", "partner"] * 2
    assert sample.response_length == record(sample).turns[2].span[1]
    assert (server.aborts == 0) == cancels, "a slime that cancels leaves the engine's other requests alone"


def test_aborted_games_come_back_aborted_with_whole_turns(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, hold=range(10, 14)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path)
        samples = run(args, play_and_abort(args, server, make_group(4), after_requests=13))
    for sample in samples:
        assert sample.status == Status.ABORTED
        assert sample.reward is None
        spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
        assert sample.response_length == (spans[-1][1] if spans else 0)


def remote(partner: OpenAIServer, **more: Any) -> dict[str, Any]:
    """A config with a partner behind an endpoint."""
    openai = {"model": partner.model, "base_url": partner.url, "backoff_seconds": 0.01, **more}
    return {"partner": {"kind": "openai", "openai": openai}}


def test_a_partner_that_fails_fails_the_game_and_what_it_cost_is_kept(server, tokenizer_dir, tmp_path) -> None:
    async def work() -> list[Sample]:
        # Enough for one game; then the endpoint answers with errors for good.
        script = [*[Step()] * 4, *[Step("status", status=500)] * 200]
        async with OpenAIServer(script=script) as partner:
            args = make_args(tokenizer_dir, server.port, tmp_path, remote(partner, max_retries=1, outage_failures=1000))
            first = await play_group(args, make_group(1))
            return first + await play_group(args, make_group(1, first=1))

    args = make_args(tokenizer_dir, server.port, tmp_path)
    played, failed = run(args, work())
    assert played.status == Status.COMPLETED
    assert sum(turn.usage["calls"] for turn in record(played).turns if turn.usage) == 4
    assert (failed.status, failed.reward, failed.remove_sample) == (Status.FAILED, 0.0, True)
    assert record(failed).stop_reason is StopReason.PARTNER_FAILED
    check_invariant(failed)


def test_no_game_waits_for_a_partner_once_the_rollout_is_aborted(server, tokenizer_dir, tmp_path) -> None:
    async def work() -> list[Sample]:
        async with OpenAIServer(script=[Step(), *[Step("hang")] * 9]) as partner:
            args = make_args(tokenizer_dir, server.port, tmp_path, remote(partner))
            return await play_and_abort(args, server, make_group(1), after_requests=2)

    [sample] = run(make_args(tokenizer_dir, server.port, tmp_path), work())
    assert sample.status == Status.ABORTED
    assert [turn.role for turn in record(sample).turns] == ["policy", "partner", "policy"]


def test_a_cancelled_game_leaves_its_record_and_what_it_cost(server, tokenizer_dir, tmp_path) -> None:
    [sample] = make_group(1)

    async def work() -> None:
        async with OpenAIServer(script=[Step(), *[Step("hang")] * 9]) as partner:
            args = make_args(tokenizer_dir, server.port, tmp_path, remote(partner))
            task = asyncio.create_task(generate(args, sample, sampling_params(args)))
            while len(partner.requests) < 2:  # noqa: ASYNC110  (the server has no event for it)
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(make_args(tokenizer_dir, server.port, tmp_path), work())
    assert sample.status == Status.ABORTED
    assert [turn.role for turn in record(sample).turns] == ["policy", "partner", "policy"]
    (kept,) = read_log(tmp_path / "logs" / "unlogged.lines")
    assert kept.stop_reason is StopReason.ABORTED
    assert [turn.usage["calls"] for turn in kept.turns if turn.usage] == [1]


@pytest.mark.parametrize("call_off", [play_and_abort, play_and_cancel])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("resume", ["replay", "restart"])
def test_an_aborted_game_goes_on_or_begins_anew(tokenizer, tokenizer_dir, tmp_path, partial, resume, call_off) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(
            tokenizer_dir,
            server.port,
            tmp_path,
            {"slime": {"resume": resume, "new_weights": "keep"}},
            partial_rollout=partial,
            rollout_top_p=0.9,
        )
        [sample] = run(args, call_off(args, server, make_group(1), after_requests=3))
        tokens, turns = list(sample.tokens), record(sample).turns
        assert len([turn for turn in turns if turn.role == "policy"]) == 2
        server.requests.clear()
        server.weight_version = "1"
        [sample] = run(args, play_group(args, [sample]))
        check_invariant(sample)
        assert sample.status == Status.COMPLETED
        goes_on = partial and resume == "replay"
        assert len(server.requests) == (2 if goes_on else 4)
        assert sample.weight_versions == (["0", "0", "1", "1"] if goes_on else ["1"] * 4)
        if goes_on:
            assert sample.tokens[: len(tokens)] == tokens
            assert [turn.text for turn in record(sample).turns[: len(turns)]] == [turn.text for turn in turns]


@pytest.mark.parametrize("new_weights", ["restart", "mask", "keep"])
@pytest.mark.parametrize("version", ["0", "1"])
def test_weights_that_change_across_an_abort_are_seen(
    tokenizer, tokenizer_dir, tmp_path, version: str, new_weights: str
) -> None:
    with serve(tokenizer, hold=[3]) as server:
        slime = {"slime": {"new_weights": new_weights}}
        args = make_args(tokenizer_dir, server.port, tmp_path, slime, partial_rollout=True)
        [sample] = run(args, play_and_abort(args, server, make_group(1), after_requests=3))
        old = sample.response_length
        server.weight_version = version
        [sample] = run(args, play_group(args, [sample]))
    changed = version != "0"
    check_invariant(sample, masked_turns=changed and new_weights == "mask")
    assert sample.status == Status.COMPLETED
    if changed and new_weights == "restart":
        assert sample.weight_versions == ["1"] * 4
    else:
        assert sample.weight_versions == ["0", "0", version, version]
        assert any(sample.loss_mask[:old]) == (not changed or new_weights == "keep")
        assert any(sample.loss_mask[old:])


@pytest.mark.parametrize("versions", [["1", None, "2", "2"], [None, "1", None, "2"]])
def test_a_turn_that_tells_no_version_hides_no_change(tokenizer, tokenizer_dir, tmp_path, versions: list) -> None:
    with serve(tokenizer) as server:
        speak, left = server.speak, list(versions)

        def speak_by_version(ids: list[int], rng: Any) -> list[int]:
            server.weight_version = left.pop(0) if left else versions[-1]
            return speak(ids, rng)

        server.speak = speak_by_version
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"new_weights": "mask"}})
        [sample] = run(args, play_group(args, make_group(1)))
    assert sample.weight_versions == versions
    spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
    trained = [any(sample.loss_mask[a:b]) for a, b in spans]
    at = versions.index("2")
    assert trained == [False] * at + [True] * (4 - at)


def test_slimes_mask_on_old_tokens_survives_resuming(tokenizer, tokenizer_dir, tmp_path) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, partial_rollout=True)
        [sample] = run(args, play_and_abort(args, server, make_group(1), after_requests=3))
        old = sample.response_length
        sample.loss_mask = [0] * old  # as slime does with --mask-offpolicy-in-partial-rollout
        [sample] = run(args, play_group(args, [sample]))
    assert not any(sample.loss_mask[:old])
    assert any(sample.loss_mask[old:])
    check_invariant(sample, masked_turns=True)


@pytest.mark.parametrize("new_weights", ["restart", "mask", "keep"])
def test_weights_that_change_in_mid_game(tokenizer, tokenizer_dir, tmp_path, new_weights) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"new_weights": new_weights}})

        async def update() -> Sample:
            task = asyncio.create_task(play_group(args, make_group(1)))
            await server.received(3)
            async with httpx.AsyncClient() as client:
                await client.post(f"{server.url}/update_weights_from_disk", json={"weight_version": "1"})
            return (await task)[0]

        sample = run(args, update())
    check_invariant(sample, masked_turns=new_weights == "mask")
    assert sample.status == Status.COMPLETED
    spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
    assert len(spans) == 4
    trained = {
        version for version, (a, b) in zip(sample.weight_versions, spans, strict=True) if any(sample.loss_mask[a:b])
    }
    expected = {"restart": {"1"}, "mask": {"1"}, "keep": {"0", "1"}}
    assert trained == expected[new_weights]
    assert set(sample.weight_versions) == ({"1"} if new_weights == "restart" else {"0", "1"})


# -------------------------------------------------------------------------------------------------------------- self-play
def test_selfplay_gives_one_sample_a_seat(server, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, {"partner": {"kind": "self"}})
    games = run(args, play_group(args, make_group(3)))
    assert [len(game) for game in games] == [2, 2, 2]
    assert len({game[0].rollout_id for game in games}) == 3
    for first, second in games:
        assert first.rollout_id == second.rollout_id is not None
        assert first.reward == second.reward > 0
        assert first.session_id != second.session_id
        assert [record(sample).seat for sample in (first, second)] == [0, 1]
        for sample in (first, second):
            check_invariant(sample)
            calls = slime_setup.sampled_ids(server, sample.session_id)
            spans = [turn.span for turn in record(sample).turns if turn.role == "policy"]
            start = len(sample.tokens) - sample.response_length
            assert [call["input_ids"] for call in calls] == [sample.tokens[: start + begin] for begin, _ in spans]


def test_failed_selfplay_is_a_list_too(tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, 9, tmp_path, {"partner": {"kind": "self"}, "slime": {"engine_patience": 0.1}})
    [[first, second]] = run(args, play_group(args, make_group(1)))
    assert first.rollout_id == second.rollout_id is not None
    for sample in (first, second):
        assert (sample.status, sample.reward, sample.remove_sample) == (Status.FAILED, 0.0, True)
        check_invariant(sample)


def test_a_game_of_ones_own_for_one_player(tokenizer, tokenizer_dir, tmp_path) -> None:
    """The environment answers the policy itself: no partner is asked, and what it says is not learned."""
    config = {
        "environment": "examples.secret_number.SecretNumber",
        "game": {"high": 8, "max_turns": 3},
        "limits": {"turn_tokens": 8, "truncated_turn": "continue"},
    }
    env = SecretNumber(high=8, max_turns=3)
    game = {"share": 0.55}  # of 8: the secret is 5
    env.reset(game)
    metadata = {"game_state": game, "game_id": "g", "seat": 0}
    sample = Sample(group_index=0, index=0, prompt=env.prompt(0), metadata=metadata, session_id="s")
    chat = Chat(tokenizer)
    with SGLangServer(lambda ids, rng: chat.said_ids(["2", "7", "5"][(ids.count(chat.end_id) - 2) // 2])) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, config)
        [sample] = run(args, play_group(args, [sample]))
    check_invariant(sample)
    assert sample.status == Status.COMPLETED
    dialogue = record(sample)
    assert dialogue.stop_reason is StopReason.FINISHED
    assert [turn.text for turn in dialogue.turns if turn.role == "policy"] == ["2", "7", "5"]
    assert sample.reward == dialogue.reward == reward([2, 7, 5], 5, 3)


def test_a_new_start_keeps_what_slime_gave(tokenizer, tokenizer_dir, tmp_path) -> None:
    given = {
        "multimodal_inputs": {"images": ["a board"]},
        "multimodal_train_inputs": {"pixel_values": [1.0]},
        "multimodal_train_input_id": "m7",
        "apply_chat_template_kwargs": {"enable_thinking": False},
    }
    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path)
        (sample,) = make_group(1)
        vars(sample).update(given)
        played = run(args, generate(args, sample, sampling_params(args)))
    dead = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_patience": 0.0}})
    (sample,) = make_group(1)
    vars(sample).update(given)
    failed = run(dead, generate(dead, sample, sampling_params(dead)))
    assert (played.status, failed.status) == (Sample.Status.COMPLETED, Sample.Status.FAILED)
    for sample in (played, failed):
        assert {name: getattr(sample, name) for name in given} == given
