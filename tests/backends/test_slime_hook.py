"""The slime hook against an SGLang server on loopback, with slime's own classes where they can be had."""

from __future__ import annotations

import asyncio
import copy

import pytest

from examples.secret_number import SecretNumber, reward
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
from tests.backends import slime_setup
from tests.backends.slime_setup import Sample, check_invariant, make_args, make_group, run, sampling_params, serve
from tests.fakes.sglang_server import SGLangServer

from slim_rl.rollout import generate  # isort: skip  (after slime is made importable)
from tests.backends.slime_play import Status, play_group, record, server

__all__ = ["server"]  # a fixture


def test_a_played_game_is_one_completed_sample(server, tokenizer, tokenizer_dir, tmp_path) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path)
    for sample in run(args, play_group(args, make_group())):
        check_invariant(sample)
        assert sample.status == Status.COMPLETED
        dialogue = record(sample)
        assert dialogue.stop_reason is StopReason.AGREED
        assert 0.0 < sample.reward <= 1.0
        assert not sample.remove_sample
        spans = [turn.span for turn in dialogue.turns if turn.role == "policy"]
        assert len(slime_setup.sampled_ids(server, sample.session_id)) == len(spans) == 4
        assert [i for i, mask in enumerate(sample.loss_mask) if mask] == [i for a, b in spans for i in range(a, b)]
        assert sample.response == tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])
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


def test_hook_wrong_config_and_row_without_game_are_refused(server, tokenizer_dir, tmp_path) -> None:
    for wrong, said in [
        ({"slim_rl": {"gmae": {}}}, "gmae"),
        ({"slim_rl": None}, "--custom-config-path"),
    ]:
        args = make_args(tokenizer_dir, server.port, tmp_path)
        vars(args).update(wrong)
        with pytest.raises(ConfigError, match=said):
            run(args, play_group(args, make_group(1)))
    args = make_args(tokenizer_dir, server.port, tmp_path)
    [bare] = make_group(1)
    bare.metadata = {}
    with pytest.raises(DataError, match="--metadata-key"):
        run(args, play_group(args, [bare]))


@pytest.mark.parametrize(
    ("flag", "reason"), [("partial_rollout", "again from its first turn"), ("group_rm", "overwrite the games' rewards")]
)
def test_hook_unsupported_flag_of_slime_is_refused(server, tokenizer_dir, tmp_path, flag, reason) -> None:
    args = make_args(tokenizer_dir, server.port, tmp_path, **{flag: True})
    with pytest.raises(ConfigError, match=rf"--{flag.replace('_', '-')} is refused: .*{reason}.*; leave it out"):
        run(args, play_group(args, make_group(1)))


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
    dead = make_args(tokenizer_dir, 9, tmp_path, {"slime": {"engine_retry_seconds": 0.0}})
    (sample,) = make_group(1)
    vars(sample).update(given)
    failed = run(dead, generate(dead, sample, sampling_params(dead)))
    assert (played.status, failed.status) == (Sample.Status.COMPLETED, Sample.Status.FAILED)
    for sample in (played, failed):
        assert {name: getattr(sample, name) for name in given} == given
