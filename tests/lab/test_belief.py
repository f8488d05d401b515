"""Credit by the policy's own belief: the beliefs are the model's, nothing else changes, and a question receives its change."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from slim_rl.analysis.load import load
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.lab.belief import Believer
from slim_rl.lab.belief_values import correlations
from slim_rl.lab.sections import belief_values_of
from slim_rl.policies.transformers import TransformersPolicy, load_policy
from tests.dialogue.players import Script
from tests.paths import ROOT

MODEL = f"policy.model={ROOT / 'data' / 'warmstart'}"


def config_of(reward: str, *overrides: str) -> Config:
    return load_config(ROOT / "configs" / "matching_local.yaml", [MODEL, f"train.reward={reward}", *overrides])


@pytest.fixture(scope="module")
def engine() -> tuple[TransformersPolicy, Chat]:
    return load_policy(config_of("price").policy)


def dialogues(engine: tuple[TransformersPolicy, Chat], config: Config, **episode: Any) -> list[Dialogue]:
    """Four games, each played four times by the tiny model."""
    policy, chat = engine
    policy.reseed(3)
    worker = RolloutWorker(config, chat, policy)
    rows = [GameRow(id, 0, game.to_dict(), []) for id, game in MatchingEnv.deal(config.game, 1, "train", range(4))]
    episode = {"step": 0, **episode}
    specs = [worker.spec(row, "test", number, **episode) for row in rows for number in range(4)]
    return [dialogue for (dialogue,) in asyncio.run(worker.play_all(specs))]


@pytest.fixture(scope="module")
def believed(engine: tuple[TransformersPolicy, Chat]) -> list[Dialogue]:
    found = dialogues(engine, config_of("belief_credit", "train.exploring_starts=0.5"))
    for dialogue in found:
        annotate(dialogue)
    return found


def own(dialogue: Dialogue) -> list[Turn]:
    return [turn for turn in dialogue.turns if turn.role == "policy"]


def test_belief_is_the_models_logprob_of_the_best_plan(
    engine: tuple[TransformersPolicy, Chat], believed: list[Dialogue]
) -> None:
    policy, chat = engine
    assert sum(len(own(dialogue)) > 1 for dialogue in believed) >= 4
    for dialogue in believed:
        said = chat.said_ids(MatchingEnv.target(dialogue.game_state, 0))
        tag = len(chat.said_ids("[propose]")) - 1
        assert chat.decode(said[:tag]) == ("[propose]", None)
        for turn in own(dialogue):
            assert turn.span is not None
            before = [*dialogue.prompt_ids, *dialogue.response_ids[: turn.span[0]], *said[:tag]]
            with torch.no_grad():
                logits = policy.model(torch.tensor([before + said[tag:]])).logits[0, len(before) - 1 : -1]
            expected = logits.log_softmax(-1).gather(1, torch.tensor(said[tag:])[:, None]).sum().item()
            assert turn.belief == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("more", [[], ["train.exploring_starts=0.5"]])
def test_belief_credit_changes_no_token(engine: tuple[TransformersPolicy, Chat], more: list[str]) -> None:
    without, with_them = (dialogues(engine, config_of(name, *more)) for name in ("price", "belief_credit"))
    assert any(turn.forced for dialogue in without for turn in own(dialogue)) == bool(more)
    for one, other in zip(without, with_them, strict=True):
        assert all(turn.belief is None for turn in own(one)) and all(turn.belief for turn in own(other))
        for name in ("prompt_ids", "response_ids", "loss_mask"):
            assert getattr(one, name) == getattr(other, name)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_score_many_dialogues_equals_each_alone(
    engine: tuple[TransformersPolicy, Chat], cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slim_rl.policies.transformers._MOST_LOGITS", 3 * 9 * 1000)  # a few rows per forward pass
    policy = TransformersPolicy(engine[0].model, engine[1].stop_ids, cache_bytes=cache_bytes)

    async def play(index: int) -> list[float]:
        ids, scores = [5 + index % 5, *range(6, 9 + index % 3)], []
        for _ in range(3):
            scored = await policy.score(ids, Sampled([7] * (1 + index % 4), [], "stop"), f"{index}")
            scores += scored.logprobs
            ids += [*(await policy.sample(ids, 4, f"{index}")).ids, 7]
        return scores

    async def together() -> list[list[float]]:
        return await asyncio.gather(*(play(index) for index in range(9)))

    for index, scores in enumerate(asyncio.run(together())):
        assert scores == pytest.approx(asyncio.run(play(index)), abs=1e-4) and len(scores) == 3 * (1 + index % 4)


def test_belief_is_computed_only_in_training(engine: tuple[TransformersPolicy, Chat]) -> None:
    for episode in ({"phase": "eval"}, {"step": None}):
        for dialogue in dialogues(engine, config_of("belief_credit"), **episode):
            assert all(turn.belief is None for turn in own(dialogue))


def test_turn_rewards_are_scaled_belief_changes(believed: list[Dialogue]) -> None:
    made: Any = make_training_reward(config_of("belief_credit", "train.reward_args={scale: 0.02, price: 0.01}"))
    rewards = made.of(believed, 0).rewards
    found = made.turn_rewards(believed, rewards)
    last: dict[str, float] = {}
    for dialogue, given in zip(believed, found, strict=True):
        beliefs = [turn.belief for turn in own(dialogue)]
        for number, credit in enumerate(given.turns[:-1]):
            cost = 0.01 * bool(own(dialogue)[number].questions and own(dialogue)[number].seeking)
            assert credit == pytest.approx(0.02 * (beliefs[number + 1] - beliefs[number]) - cost)
        last[dialogue.group] = last.get(dialogue.group, 0.0) + given.turns[-1]
    assert last == pytest.approx(dict.fromkeys(last, 0.0), abs=1e-9)
    # within a group all differ from their dialogue's reward by one number: shaping
    sums = [sum(given.turns) - reward for given, reward in zip(found, rewards, strict=True)]
    for start in range(0, 16, 4):
        assert sums[start : start + 4] == pytest.approx([sums[start]] * 4)
    assert [len(each) for each in made(believed, 0).advantages] == [len(own(dialogue)) for dialogue in believed]


def test_turn_without_belief_has_that_of_the_turn_before(believed: list[Dialogue]) -> None:
    made: Any = make_training_reward(config_of("belief_credit"))
    turns = [replace(believed[0].turns[0], belief=belief) for belief in (None, -9.0, None, -4.0)]
    assert made.values(replace(believed[0], turns=turns)) == pytest.approx([0.0, 0.0, 0.0, 0.05])
    assert made.values(replace(believed[0], turns=turns[:1])) == [0.0]


def test_belief_survives_the_log(believed: list[Dialogue], tmp_path: Any) -> None:
    log = DialogueLog(tmp_path / "log.jsonl", tokens=True)
    for dialogue in believed:
        log.append(copy.deepcopy(dialogue))
    assert [own(line)[0].belief for line in read_log(tmp_path)] == [own(line)[0].belief for line in believed]
    line = believed[0].to_dict()["turns"]
    assert "belief" in line[0] and not any("belief" in turn for turn in line if turn["role"] == "partner")


def test_report_correlates_belief_changes_with_values(believed: list[Dialogue], tmp_path: Any) -> None:
    log = DialogueLog(tmp_path / "log" / "log.jsonl")
    for dialogue in copy.deepcopy(believed):
        for turn, following in zip(own(dialogue), own(dialogue)[1:], strict=False):
            following.belief = (turn.belief or 0.0) + 3 * (turn.question_value or 0.0)
        log.append(dialogue)
    first, *_ = rows = correlations(load([tmp_path / "log"]))
    assert first["value of"] == "expected value" and first["value"] == pytest.approx(1.0)
    assert first["n"] == sum(turn.seeking is True for line in believed for turn in own(line)[:-1])
    assert first["steps"] == "1 to 1"
    (table,) = belief_values_of(load([tmp_path / "log"]), 0.0).tables
    assert table.rows == rows
    plain = DialogueLog(tmp_path / "plain" / "log.jsonl")
    plain.append(replace(believed[0], turns=[replace(turn, belief=None) for turn in believed[0].turns]))
    assert not belief_values_of(load([tmp_path / "plain"]), 0.0).numbers


def test_report_correlates_each_quarter_of_training(believed: list[Dialogue], tmp_path: Any) -> None:
    log = DialogueLog(tmp_path / "log.jsonl")
    for step, dialogue in enumerate(copy.deepcopy(believed * 4)):
        dialogue.step, dialogue.group, dialogue.id = step // len(believed), f"{step}", f"train/{step}"
        sign = -1 if dialogue.step == 3 else 1
        for turn, following in zip(own(dialogue), own(dialogue)[1:], strict=False):
            following.belief = (turn.belief or 0.0) + sign * (turn.question_value or 0.0)
        log.append(dialogue)
    rows = [row for row in correlations(load([tmp_path])) if row["value of"] == "expected value"]
    assert [row["steps"] for row in rows] == ["1 to 4", "1 to 1", "2 to 2", "3 to 3", "4 to 4"]
    assert [row["value"] for row in rows[1:]] == pytest.approx([1.0, 1.0, 1.0, -1.0])
    assert sum(row["n"] for row in rows[1:]) == rows[0]["n"]


class Scored(Script):
    """A script whose engine scores, or fails to."""

    def __init__(self, chat: Any, answer: Any) -> None:
        super().__init__(chat, ["[accept]"])
        self.answer = answer

    async def score(self, input_ids: list[int], turn: Sampled, key: str) -> Sampled:
        if isinstance(self.answer, Exception):
            raise self.answer
        return replace(turn, logprobs=[-1.0] * len(turn.ids), finish=self.answer)


@pytest.mark.parametrize(
    ("answer", "allowed", "belief"),
    [("stop", 50, -4.0), ("stop", 4, None), (PolicyFailure("too long", StopReason.CONTEXT_LENGTH), 50, None)],
)
def test_truth_that_does_not_fit_is_not_scored(tokenizer: Any, answer: Any, allowed: int, belief: float | None) -> None:
    chat, target = Chat(tokenizer), "[propose]\nBLEU: Ava Li"
    assert len(chat.said_ids(target)) == 5, "of which the first is the tag"
    sampled = asyncio.run(Believer(Scored(chat, answer), chat, target).sample([1, 2], allowed, "key"))
    assert sampled.belief == belief and "[accept]".startswith(chat.decode(sampled.ids)[0])


def test_engine_that_aborts_or_fails_to_score_ends_the_turn(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    aborted = Believer(Scored(chat, "abort"), chat, "[propose]\nBLEU: Ava Li")
    assert asyncio.run(aborted.sample([1], 50, "key")).finish == "abort" and not aborted.policy.inputs
    failed = Believer(Scored(chat, PolicyFailure("down")), chat, "[propose]\nBLEU: Ava Li")
    with pytest.raises(PolicyFailure, match="down"):
        asyncio.run(failed.sample([1], 50, "key"))


def test_belief_credit_without_a_scoring_engine_is_refused(tokenizer: Any) -> None:
    worker = RolloutWorker(parse_config({"game": {"n": 3}, "train": {"reward": "belief_credit"}}), Chat(tokenizer))
    (row,) = (GameRow(id, 0, g.to_dict(), []) for id, g in MatchingEnv.deal(worker.config.game, 1, "train", range(1)))
    with pytest.raises(ConfigError, match=r"train\.reward=belief_credit needs an engine that scores tokens, .*Script"):
        asyncio.run(worker.play(worker.spec(row, "test", step=0), policy=Script(worker.chat, [])))
