"""A game that slime's rollout calls off keeps whole turns, and goes on or begins anew, whatever weights it comes back to."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from slim_rl.dialogue.log import read_log
from tests.backends import slime_setup
from tests.backends.slime_play import Status, play_and_abort, play_and_cancel, play_group, record, remote, server
from tests.backends.slime_setup import Sample, check_invariant, make_args, make_group, run, sampling_params, serve
from tests.fakes.openai_server import OpenAIServer, Step

from slim_rl.backends.slime.setup import RolloutContext  # isort: skip  (after slime is made importable)
from slim_rl.rollout import log_rollout, normalize_rewards  # isort: skip

__all__ = ["server"]  # a fixture


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


def test_no_game_waits_for_a_partner_once_the_rollout_is_aborted(server, tokenizer_dir, tmp_path) -> None:
    async def work() -> list[Sample]:
        async with OpenAIServer(script=[Step(), *[Step("hang")] * 9]) as partner:
            args = make_args(tokenizer_dir, server.port, tmp_path, remote(partner))
            return await play_and_abort(args, server, make_group(1), after_requests=2)

    [sample] = run(make_args(tokenizer_dir, server.port, tmp_path), work())
    assert sample.status == Status.ABORTED
    assert [turn.role for turn in record(sample).turns] == ["policy", "partner", "policy"]


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


@pytest.mark.parametrize("call_off", [play_and_abort, play_and_cancel])
@pytest.mark.parametrize("resume", ["replay", "restart"])
def test_an_attempt_that_came_to_nothing_stays_on_disk(tokenizer, tokenizer_dir, tmp_path, resume, call_off) -> None:
    with serve(tokenizer, hold=[3]) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"slime": {"resume": resume}}, partial_rollout=True)
        [sample] = run(args, call_off(args, server, make_group(1), after_requests=3))
        begun = [turn.text for turn in record(sample).turns]
        [sample] = run(args, play_group(args, [sample]))
    assert sample.status == Status.COMPLETED
    log_rollout(0, args, [sample], {}, 1.0)
    left = [[turn.text for turn in dialogue.turns] for dialogue in read_log(tmp_path / "logs" / "unlogged.lines")]
    assert left == ([] if resume == "replay" else [begun]), "what was said before is in the log where the game went on"


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
    log_rollout(0, args, [sample], {}, 1.0)
    thrown_away = list(read_log(tmp_path / "logs" / "unlogged.lines"))
    assert [len(dialogue.turns) for dialogue in thrown_away] == ([4] if new_weights == "restart" else [])


def test_a_game_that_was_called_off_while_it_was_annotated_pays_for_its_questions(
    tokenizer, tokenizer_dir, tmp_path, monkeypatch
) -> None:
    async def work() -> list[Sample]:
        annotating = asyncio.Event()

        async def never_ends(*_: Any) -> None:
            annotating.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(RolloutContext, "annotate", never_ends)
        [sample] = group = make_group(1)
        task = asyncio.create_task(play_group(args, group))
        await annotating.wait()
        task.cancel()
        await asyncio.wait((task,))
        assert sample.status == Status.COMPLETED
        return group

    with serve(tokenizer) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, {"train": {"question_price": 0.1}})
        [sample] = run(args, work())
    raw, _ = normalize_rewards(args, [sample])
    assert raw[0] == pytest.approx(sample.reward - 3 * 0.1)
