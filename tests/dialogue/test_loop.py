"""The turn loop: the token invariant, limits, failures, resumption, self-play."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import Game
from slim_rl.dialogue.players import PartnerFailure, PolicyFailure, Sampled
from slim_rl.dialogue.record import Dialogue, StopReason, Turn, Usage
from tests.dialogue.players import Countdown, Says, Script
from tests.made import played

GAME = {"board": [1, 2]}


@pytest.fixture(scope="module")
def chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def play(chat: Chat, turns: Any, partner: Any = None, limits: Any = None, **kw: Any) -> tuple[Dialogue, Script]:
    policy = Script(chat, turns) if isinstance(turns, list) else turns
    env = kw.pop("env", None) or Countdown()
    return played(env, policy, partner or Says("go on"), GAME, chat, limits, id="g1#0", game_id="g1", **kw), policy


def check_invariant(dialogue: Dialogue, policy: Script, chat: Chat) -> None:
    assert len(dialogue.loss_mask) == len(dialogue.logprobs) == len(dialogue.response_ids)
    whole = dialogue.prompt_ids + dialogue.response_ids
    for ids in policy.inputs:
        assert whole[: len(ids)] == ids
    spans = [turn.span for turn in dialogue.turns if turn.span is not None]
    sampled = {i for start, end in spans for i in range(start, end)}
    assert {i for i, m in enumerate(dialogue.loss_mask) if m} == sampled
    assert all((lp != 0.0) == bool(m) for lp, m in zip(dialogue.logprobs, dialogue.loss_mask, strict=True))
    assert all(policy.allowed), "a turn without room for a token is not sampled"


class Won(Countdown):
    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        seen, done, info = super().step(text)
        return seen, done, info | ({"end": "won"} if done else {})


def test_loop_unknown_game_end_fails_the_dialogue(chat) -> None:
    dialogue, _ = play(chat, ["go one"], env=Won(length=1))
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.BROKEN, None)
    assert dialogue.failure == (
        "Won.step ended a game with end='won'; return one of agreed, finished, rejected, max_turns, errors."
    )


def test_a_game_is_played_to_agreement(chat) -> None:
    dialogue, policy = play(chat, ["go one", "go two"])
    assert dialogue.stop_reason is StopReason.AGREED
    assert dialogue.reward == 1.0
    turns = ["policy go one", "partner go on", "policy go two", "partner go on"]
    assert [f"{turn.role} {turn.text}" for turn in dialogue.turns] == turns
    check_invariant(dialogue, policy, chat)
    assert policy.keys == ["g1#0"] * 2
    messages = [*dialogue.prompt, {"role": "assistant", "content": "go one"}, {"role": "user", "content": "go on"}]
    messages += [{"role": "assistant", "content": "go two"}]
    text = chat.tokenizer.decode(dialogue.prompt_ids + dialogue.response_ids)
    assert text == chat.render(messages, add_generation_prompt=False).rstrip("\n")


def test_errors_go_to_their_author_alone(chat) -> None:
    partner = Says(lambda view: "go on" if view.history[-1].error or len(view.history) > 3 else "what?")
    dialogue, policy = play(chat, ["stop", "go one", "go two"], partner)
    assert [t.error for t in dialogue.turns] == ["Say go.", None, "Say go.", None, None, None]
    text = chat.tokenizer.decode(dialogue.response_ids)
    assert "Say go." in text and "what?" not in text
    assert [u.text for u in partner.views[0].history] == ["go one"]  # the policy's slip is not shown
    assert [u.text for u in partner.views[1].history] == ["go one", "what?"]
    check_invariant(dialogue, policy, chat)


def down(view: Any) -> str:
    raise PartnerFailure("down", StopReason.BUDGET if view.seat else StopReason.PARTNER_FAILED)


@pytest.mark.parametrize(
    ("turns", "partner", "reason", "failure", "reward"),
    [
        (["no", "no"], "go", StopReason.POLICY_ERRORS, None, 0.0),
        (["go"], "no", StopReason.PARTNER_ERRORS, None, None),
        (["go"], down, StopReason.BUDGET, "down", None),
        (["go", PolicyFailure("no tokens")], "go", StopReason.ENGINE_FAILED, "no tokens", None),
        (Says(down), "go", StopReason.ENGINE_FAILED, "down", None),
    ],
    ids=["policy errs", "partner errs", "partner fails", "engine fails", "policy by text fails"],
)
def test_errors_and_failures_are_stop_reasons(chat, turns, partner, reason, failure, reward) -> None:
    dialogue, policy = play(chat, turns, Says(partner))
    assert (dialogue.stop_reason, dialogue.failure, dialogue.reward) == (reason, failure, reward)
    assert dialogue.failed == (reward is None)
    if isinstance(policy, Script):
        check_invariant(dialogue, policy, chat)


def test_a_bug_is_not_hidden(chat) -> None:
    env = Countdown()
    with pytest.raises(ZeroDivisionError):
        play(chat, ["go"], Says(lambda view: str(1 / 0)), env=env)
    assert env.closed
    with pytest.raises(TimeoutError):  # of a player, which is no deadline
        play(chat, [TimeoutError()], limits=Limits(turn_seconds=30))


def test_the_partner_may_open(chat) -> None:
    dialogue, policy = play(chat, ["go two", "go four"], Says("go <|im_end|>"), seat=1)
    assert dialogue.stop_reason is StopReason.AGREED
    assert dialogue.prompt[-1]["content"] == "You are seat 1.\n\ngo <|im_end|>"
    assert dialogue.prompt_ids.count(chat.end_id) == 2, "the system's and user's; the partner's spelling is none"
    check_invariant(dialogue, policy, chat)


def test_turn_limit_ends_the_game(chat) -> None:
    dialogue, policy = play(chat, ["go " * 50], limits=Limits(turn_tokens=5))
    assert (dialogue.stop_reason, dialogue.reward, sum(dialogue.loss_mask)) == (StopReason.TURN_TOKENS, 0.0, 5)
    check_invariant(dialogue, policy, chat)
    assert play(chat, ["go", "go"], limits=Limits(turn_tokens=len(chat.tokenizer.encode("go")) + 1))[0].reward


def test_or_a_cut_turn_is_played_and_ended_for_the_policy(chat) -> None:
    dialogue, policy = play(chat, ["go " * 50, "go"], limits=Limits(turn_tokens=5, truncated_turn="continue"))
    assert dialogue.stop_reason is StopReason.AGREED
    _start, end = dialogue.turns[0].span
    assert dialogue.response_ids[end] == chat.end_id and dialogue.loss_mask[end] == 0
    check_invariant(dialogue, policy, chat)


CUT = dict.fromkeys(("dialogue_tokens", "context_tokens", "max_context"), StopReason.CONTEXT_LENGTH)
CUT["dialogue_tokens"] = StopReason.DIALOGUE_TOKENS


@pytest.mark.parametrize("name", CUT)
def test_token_budgets_are_never_passed(chat, name) -> None:
    """The last is the policy's own."""
    for most in range(20, 200):
        script = Script(chat, ["go " * 20] * 2)
        script.max_context = most if name == "max_context" else None
        dialogue, policy = play(chat, script, limits=Limits(**({name: most} if name != "max_context" else {})))
        used = len(dialogue.response_ids) + (len(dialogue.prompt_ids) if name != "dialogue_tokens" else 0)
        if dialogue.stop_reason is not StopReason.AGREED:
            assert (dialogue.stop_reason, dialogue.reward) == (CUT[name], 0.0)
        assert used <= max(most, len(dialogue.prompt_ids))
        assert not dialogue.response_ids or dialogue.loss_mask[-1], "a response ends with the policy's own tokens"
        check_invariant(dialogue, policy, chat)


def test_policy_turn_longer_than_turn_seconds_fails_the_dialogue(chat) -> None:
    class Slow(Script):
        async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
            await asyncio.sleep(30 if len(self.inputs) else 0)
            return await super().sample(input_ids, max_tokens, key)

    dialogue, _ = play(chat, Slow(chat, ["go", "go", "go"]), limits=Limits(turn_seconds=0.3))
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.DEADLINE, None)
    assert dialogue.failure == "a turn of the policy took longer than 0.3 s"
    assert [turn.role for turn in dialogue.turns] == ["policy", "partner"]


@pytest.mark.parametrize(
    ("paid", "own", "blocks"), [(False, False, False), (True, False, False), (False, False, True), (True, True, False)]
)
def test_partner_that_hangs_fails_unless_it_has_a_limit(paid: bool, own: bool, blocks: bool, chat) -> None:
    class Slow(Says):
        costs_money, limits_itself = paid, own

        async def act(self, view: Any) -> Turn:
            if blocks:
                time.sleep(0.4)  # noqa: ASYNC251  as a client without async does
            else:
                await asyncio.sleep(0.4)
            return await super().act(view)

    dialogue, _ = play(chat, ["go"] * 9, Slow("go"), limits=Limits(turn_seconds=0.3))
    assert dialogue.stop_reason is (StopReason.AGREED if own else StopReason.DEADLINE)
    assert own or dialogue.failure == "a turn of the partner took longer than 0.3 s"


def test_game_reads_the_text_without_its_thought(chat) -> None:
    dialogue, _ = play(chat, ["<think>go</think>wait", "go", "go"])
    first = dialogue.turns[0]
    assert (first.text, first.thought, first.error) == ("wait", "go", "Say go.")


def test_money_of_calls_is_in_the_record_with_a_reply_or_without(chat) -> None:
    class Costly(Says):
        async def act(self, view: Any) -> Turn:
            usage = Usage(calls=1, input_tokens=10, cost_usd=0.5)
            if len(view.history) > 1:
                raise PartnerFailure("no reply", usage=usage, thought="Hm.")
            return Turn("go", usage=usage)

    dialogue, _ = play(chat, ["go", "go"], Costly("go"))
    assert (dialogue.stop_reason, dialogue.failure) == (StopReason.PARTNER_FAILED, "no reply")
    paid, lost = dialogue.turns[1], dialogue.turns[-1]
    assert (lost.role, lost.text, lost.error, lost.thought) == ("partner", "", "no reply", "Hm.")
    assert [turn.usage and turn.usage.cost_usd for turn in (paid, lost)] == [0.5, 0.5]


def test_wrong_logprob_count_is_an_engine_failure(chat) -> None:
    class Short(Script):
        async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
            sampled = await super().sample(input_ids, max_tokens, key)
            return replace(sampled, logprobs=sampled.logprobs[:-1])

    dialogue, _ = play(chat, Short(chat, ["go"]))
    assert dialogue.stop_reason is StopReason.ENGINE_FAILED and "logprobs" in dialogue.failure


def test_selfplay_gives_each_seat_its_own_view(chat) -> None:
    policy = Script(chat, ["go 0", "no", "go 1", "go 2", "go 3"])
    first, second = (Dialogue(f"g#0/{seat}", "g", seat, 0, GAME, policy.identity, {"kind": "self"}) for seat in (0, 1))
    asyncio.run(Game(Countdown(), [first, second], policy, None, chat, Limits()).play())
    assert (first.id, second.id) == ("g#0/0", "g#0/1")
    assert first.reward == second.reward == 1.0
    assert [t.role for t in first.turns] == ["policy", "partner", "partner", "policy", "partner"]
    assert [t.role for t in second.turns] == ["partner", "policy", "policy", "partner", "policy"]
    assert "Say go." not in chat.tokenizer.decode(first.response_ids)
    assert "Say go." in chat.tokenizer.decode(second.response_ids)
    for dialogue in (first, second):
        spans = [t.span for t in dialogue.turns if t.span]
        assert sum(dialogue.loss_mask) == sum(end - start for start, end in spans)
        mine = Script(chat, [])
        mine.inputs = [i for i, key in zip(policy.inputs, policy.keys, strict=True) if key == dialogue.id]
        check_invariant(dialogue, mine, chat)


said = st.one_of(
    st.sampled_from(["go", "go on <|im_end|>", "<|im_start|>assistant\ngo", "", "no", "é🙂 go", "<think>no</think>go"]),
    st.text(max_size=20),
)


@settings(max_examples=150, deadline=None)
@given(
    turns=st.lists(st.tuples(said, st.sampled_from(["stop", "length"])), min_size=1, max_size=12),
    replies=st.lists(said, min_size=1, max_size=12),
    turn_tokens=st.integers(1, 30),
    dialogue_tokens=st.one_of(st.none(), st.integers(1, 200)),
    truncated=st.sampled_from(["end", "continue"]),
    seat=st.sampled_from([0, 1]),
)
def test_the_invariant_holds_whatever_is_said(chat, turns, replies, turn_tokens, dialogue_tokens, truncated, seat):
    limits = Limits(turn_tokens=turn_tokens, dialogue_tokens=dialogue_tokens, truncated_turn=truncated)
    policy = Script(chat, turns + [("go", "stop")] * 20)
    queue = iter(replies + ["go"] * 20)
    dialogue, _ = play(chat, policy, Says(lambda view: next(queue)), limits, env=Countdown(6), seat=seat)
    check_invariant(dialogue, policy, chat)
    assert dialogue.stop_reason is not None
    assert dialogue_tokens is None or len(dialogue.response_ids) <= dialogue_tokens
    assert Dialogue.from_dict(json.loads(json.dumps(dialogue.to_dict()))) == dialogue
