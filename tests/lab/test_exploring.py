"""Exploring starts: whose first question is put, what is kept of it, and that nothing is put twice or where it should not be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import TrainConfig, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.settings import MatchingSettings
from slim_rl.lab.exploring import explores, share
from tests.dialogue.players import Script

(GAME,) = generate_games(1, MatchingSettings(n=3), seed=1)
ROW = GameRow(GAME.id, 0, GAME.to_dict(), [])
PLAN = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"


@given(st.floats(0, 1), st.integers(1, 60), st.integers(0, 80))
def test_the_share_falls_to_nothing_in_a_line(starts: float, over: int, step: int) -> None:
    train = TrainConfig(exploring_starts=starts, exploring_steps=over)
    assert share(train, 0) == starts
    assert share(train, over + step) == 0.0
    assert share(train, step) >= share(train, step + 1)
    if 2 * step == over:
        assert share(train, step) == pytest.approx(starts / 2)


def test_by_default_it_falls_over_the_whole_run() -> None:
    train = TrainConfig(exploring_starts=0.8, steps=40)
    assert share(train, 20) == pytest.approx(0.4) and share(train, 39) > 0.0


@pytest.mark.parametrize("starts", [0.0, 0.25, 1.0])
def test_that_share_of_dialogues_explores(starts: float) -> None:
    train = TrainConfig(exploring_starts=starts)
    drawn = [explores(train, 0, seed) for seed in range(2000)]
    assert sum(drawn) / len(drawn) == pytest.approx(starts, abs=0.03)
    assert drawn == [explores(train, 0, seed) for seed in range(2000)]


def worker(tokenizer: Any, *overrides: str) -> RolloutWorker:
    config = parse_config({}, ["game.n=3", "train.exploring_starts=1", "train.exploring_steps=10", *overrides])
    return RolloutWorker(config, Chat(tokenizer))


def play(by: RolloutWorker, turns: list[Any], **episode: Any) -> tuple[Dialogue, Script]:
    policy = Script(by.chat, turns)
    (dialogue,) = asyncio.run(by.play(by.spec(ROW, "test", **episode), policy=policy))
    annotate(dialogue)
    return dialogue, policy


def test_a_first_question_is_put_and_learned_from(tokenizer: Any) -> None:
    by = worker(tokenizer)
    dialogue, policy = play(by, ["[message] What is Ava Li on BLEU?", PLAN, PLAN, PLAN], step=0)
    first, second, *_ = [turn for turn in dialogue.turns if turn.role == "policy"]
    asked = MatchingEnv.questions_worth_asking(GAME.to_dict(), 0, 1, dialogue.seed)
    assert first.forced and [first.text] == asked and first.seeking
    assert not second.forced and second.text == "[message] What is Ava Li on BLEU?"
    # learned from as its own words; the policy finds it, and its answer, in what it reads
    assert first.span is not None
    start, end = first.span
    assert dialogue.loss_mask[start:end] == [1] * (end - start)
    assert by.chat is not None and by.chat.decode(dialogue.response_ids[start:end])[0] == first.text
    whole = dialogue.prompt_ids + dialogue.response_ids
    assert all(whole[: len(ids)] == ids for ids in policy.inputs)
    assert len(policy.inputs[0]) > len(dialogue.prompt_ids) + end
    assert measures(dialogue)["questions_forced"] == 1 and measures(dialogue)["questions"] == 2
    assert dialogue.policy == policy.identity, "it is the policy's dialogue, not an intervention of evaluation's"
    assert [turn.forced for turn in Dialogue.from_dict(dialogue.to_dict()).turns] == [
        turn.forced for turn in dialogue.turns
    ]


@pytest.mark.parametrize("episode", [{"step": 10}, {"step": 0, "phase": "eval"}, {"dealt": 10}])
def test_nothing_is_put_afterwards_or_in_evaluation(tokenizer: Any, episode: dict[str, Any]) -> None:
    dialogue, policy = play(worker(tokenizer), [PLAN] * 9, **episode)
    assert policy.inputs and not any(turn.forced for turn in dialogue.turns)


def test_the_step_may_be_told_by_the_games_dealt(tokenizer: Any) -> None:
    dialogue, _ = play(worker(tokenizer), [PLAN] * 9, dealt=0)
    assert dialogue.turns[0].forced and dialogue.step is None


def test_a_question_is_put_within_the_limits_of_a_turn(tokenizer: Any) -> None:
    """As what the policy says itself is cut: a trainer's batch holds no more."""
    dialogue, policy = play(worker(tokenizer, "limits.turn_tokens=5"), [PLAN], step=0)
    assert (dialogue.stop_reason, policy.inputs) == (StopReason.TURN_TOKENS, [])
    assert dialogue.turns[0].forced and len(dialogue.response_ids) == 5 and dialogue.loss_mask == [1] * 5
    goes_on, _ = play(worker(tokenizer, "limits.turn_tokens=5", "limits.truncated_turn=continue"), [PLAN] * 9, step=0)
    assert goes_on.turns[0].forced and len(goes_on.turns) > 1


def test_nothing_is_put_where_nothing_is_trained(tokenizer: Any) -> None:
    """As where a person plays, or what a config pays is measured: there is no step."""
    dialogue, _ = play(worker(tokenizer), [PLAN] * 9)
    assert not any(turn.forced for turn in dialogue.turns)
