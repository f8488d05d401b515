"""GRPO through the real TRL: gradients at policy tokens only, failed dialogues without a say, resumption to the bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
import yaml
from safetensors.torch import load_file

from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.backends.trl.checkpoints import last_whole_checkpoint
from slim_rl.backends.trl.rollouts import Rollouts, loss_mask
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.players import Partner, PartnerFailure, make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import SlimError
from slim_rl.policies.transformers import TransformersPolicy, load_model

TINY = yaml.safe_load("""
seed: 1
game: {n: 2, scales: false, max_turns: 6, max_errors: 2, rules: none, hardness: 1.1}
data: {num_train: 40, num_eval: 6}
partner: {kind: shy, args: {accept_fraction: 0.0}}
limits: {turn_tokens: 48, dialogue_tokens: 240}
train: {steps: 4, games_per_step: 2, group_size: 4, micro_batch: 4, learning_rate: 0.001, save_every: 2, eval_games: 4}
warmstart: {games: 300, lessons: {seen: 100}, epochs: 5, batch_size: 16, learning_rate: 0.005, hidden_size: 64, layers: 1}
""")


def make_config(folder: Path, name: str, *overrides: str) -> Config:
    data = json.loads(json.dumps(TINY))
    data["data"] |= {"train": str(folder / "train.jsonl"), "eval": str(folder / "eval.jsonl")}
    data |= {"name": name, "output_dir": str(folder / "runs")}
    data["policy"] = {"model": str(folder / "model")}
    return parse_config(data, overrides)


def make_rollouts(config: Config, folder: Path, partner: Any = None) -> tuple[Any, Rollouts]:
    model, tokenizer = load_model(config.policy)
    chat = Chat(tokenizer)
    policy = TransformersPolicy(model, chat.stop_ids, pad_id=tokenizer.pad_token_id)
    log = DialogueLog(folder / f"{config.name}.jsonl")
    worker = RolloutWorker(config, chat, policy, partner=partner)
    rollouts = Rollouts(worker, policy, load_rows(config), log)
    return make_trainer(config, model, tokenizer, rollouts, folder / config.name), rollouts


class Unreliable(Partner):
    """A shy partner whose every third dialogue fails."""

    def __init__(self, config: Config) -> None:
        self.partner: Any = make_partner(config)

    @property
    def identity(self) -> dict[str, Any]:
        return self.partner.identity

    async def act(self, view: Any) -> Turn:
        if view.seed % 3 == 0:
            raise PartnerFailure("down")
        return await self.partner.act(view)


def batch(trainer: Any) -> dict[str, Any]:
    """The step's dialogues as TRL makes a batch of them."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    rows = next(iter(trainer.get_train_dataloader()))
    return trainer._generate_and_score_completions(rows)


def test_rollouts_come_in_the_order_of_the_prompts(folder) -> None:
    trainer, rollouts = make_rollouts(make_config(folder, "tokens"), folder)
    names = rollouts.names()[:2]
    output = rollouts([name for name in names for _ in range(4)], trainer)
    lines = list(read_log(folder / "tokens.jsonl"))
    assert len(lines) == len(output["completion_ids"]) == 8
    for i, line in enumerate(lines):
        assert sum(output["env_mask"][i]) == sum(turn.span[1] - turn.span[0] for turn in line.turns if turn.span)
        assert output["given"][i] == line.reward
    assert [line.game_id for line in lines] == [name.split("/")[0] for name in names for _ in range(4)]


def test_failed_dialogues_have_no_say_and_are_counted(folder) -> None:
    config = make_config(folder, "faults", "train.games_per_step=6", "train.stop_failures=1.0")
    trainer, rollouts = make_rollouts(config, folder, Unreliable(config))
    inputs = batch(trainer)
    failed = [line.reward is None for line in read_log(folder / "faults.jsonl")]
    assert 0 < sum(failed) < len(failed)
    assert rollouts.metrics["failed"] == pytest.approx(sum(failed) / len(failed))
    advantages, mask = inputs["advantages"], inputs["tool_mask"] * inputs["completion_mask"]
    for row, bad in enumerate(failed):
        if bad:
            assert advantages[row] == 0.0 and mask[row].sum() == 0
    rewards = [line.reward for line in read_log(folder / "faults.jsonl")]
    for start in range(0, len(rewards), 4):
        group = [r for r in rewards[start : start + 4] if r is not None]
        for row in range(start, start + 4):
            if not failed[row] and len(group) > 1 and len(set(group)) > 1:
                mean, std = sum(group) / len(group), torch.tensor(group).std().item()
                assert advantages[row].item() == pytest.approx((rewards[row] - mean) / (std + 1e-4), abs=1e-4)


def test_too_many_failures_stop_the_run_with_the_reason(folder) -> None:
    class Down(Unreliable):
        async def act(self, view: Any) -> Turn:
            raise PartnerFailure("the endpoint is down")

    config = make_config(folder, "down")
    trainer, rollouts = make_rollouts(config, folder, Down(config))
    with pytest.raises(SlimError, match="the endpoint is down"):
        rollouts([name for name in rollouts.names()[:2] for _ in range(4)], trainer)


def test_a_failed_dialogue_teaches_nothing() -> None:
    dialogue = Dialogue("d", "g", 0, 0, {}, {}, {}, response_ids=[1, 2], loss_mask=[1, 0], logprobs=[-1.0, 0.0])
    dialogue.stop_reason = StopReason.AGREED
    assert loss_mask(dialogue) == [1, 0]
    dialogue.stop_reason = StopReason.PARTNER_FAILED
    assert loss_mask(dialogue) == [0, 0]
    dialogue.response_ids = []
    assert loss_mask(dialogue) == [0]


def weights(result: local.Result) -> dict[str, torch.Tensor]:
    return load_file(result.run_dir / "model" / "model.safetensors")


def lines(result: local.Result) -> list[tuple[Any, ...]]:
    keep = ("step", "game_id", "reward", "stop_reason")
    return [tuple(getattr(line, key) for key in keep) for line in read_log(result.log_dir / "train.jsonl")]


def test_a_run_trains_logs_and_can_be_interrupted_at_any_step(folder, whole, monkeypatch) -> None:
    broken = make_config(folder, "broken")

    class Interrupted(Exception):
        pass

    play = Rollouts.__call__

    def breaks_at_step_3(self: Rollouts, prompts: Any, trainer: Any) -> Any:
        if trainer.state.global_step == 3 and self.config.name == "broken":
            raise Interrupted
        return play(self, prompts, trainer)

    monkeypatch.setattr(Rollouts, "__call__", breaks_at_step_3)
    with pytest.raises(Interrupted):
        local.train(broken)
    monkeypatch.setattr(Rollouts, "__call__", play)
    checkpoints = folder / "runs" / "broken" / "checkpoints"
    (checkpoints / "checkpoint-3").mkdir()  # torn: not written to its end
    (checkpoints / "checkpoint-2-kept").mkdir()  # somebody's copy, under another name
    assert last_whole_checkpoint(checkpoints).name == "checkpoint-2"
    assert not (checkpoints / "checkpoint-3").exists() and (checkpoints / "checkpoint-2-kept").exists()
    resumed = local.train(broken)

    started = load_model(broken.policy)[0].state_dict()
    straight, again = weights(whole), weights(resumed)
    assert straight.keys() == again.keys()
    assert all(torch.equal(straight[name], again[name]) for name in straight)
    assert any(not torch.equal(straight[name].float(), started[name]) for name in straight)

    assert len(lines(whole)) == 4 * 8
    assert lines(whole) == lines(resumed)
    assert len(whole.before) == len(whole.after) == 4
    logs = resumed.log_dir / "train.jsonl"
    metrics = [json.loads(line) for line in (resumed.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == sorted({dialogue.step for dialogue in read_log(logs)}) == [0, 1, 2, 3]
    assert {"reward", "questions", "valid_proposals", "agreed", "entropy", "tokens_per_second"} <= metrics[0].keys()


def test_a_finished_run_is_left_as_it_is_and_can_be_made_longer(folder, whole) -> None:
    short = local.train(make_config(folder, "longer", "train.steps=2"))
    after_two = weights(short)
    shutil.rmtree(short.run_dir / "model")  # as if stopped between the last checkpoint and the model
    again = local.train(make_config(folder, "longer", "train.steps=2"))
    assert len(lines(again)) == 2 * 8
    assert all(torch.equal(after_two[name], tensor) for name, tensor in weights(again).items())
    longer = local.train(make_config(folder, "longer"))
    assert lines(longer) == lines(whole)
    assert all(torch.equal(weights(whole)[name], tensor) for name, tensor in weights(longer).items())


def test_selfplay_gives_two_rows_a_game_with_one_reward(folder) -> None:
    trainer, rollouts = make_rollouts(make_config(folder, "selfplay", "partner.kind=self"), folder)
    names = rollouts.names()[:2]
    output = rollouts([name for name in names for _ in range(4)], trainer)
    assert [str(dialogue.seat) for dialogue in rollouts.dialogues] == [name[-1] for name in names for _ in range(4)]
    assert output["given"][:4] == output["given"][4:]
    groups = [dialogue.group for dialogue in rollouts.dialogues]  # that advantages are compared in
    assert len(set(groups[:4])) == len(set(groups[4:])) == 1
    assert groups[0] != groups[4]
    assert output["prompt_ids"][0] != output["prompt_ids"][4]
    assert all(sum(mask) > 0 for mask in output["env_mask"][:4])


def test_lora_trains_adapters_and_saves_a_whole_model(folder) -> None:
    def trained(name: str, *more: str) -> local.Result:
        return local.train(make_config(folder, name, "train.lora={r: 2, alpha: 4}", "train.steps=2", *more))

    result = trained("lora")
    saved = make_config(folder, "lora", f"policy.model={result.run_dir}/model")
    assert not any("lora" in name for name in load_model(saved.policy)[0].state_dict())
    stored = weights(result)
    shutil.rmtree(result.run_dir / "model")
    again, recomputed = weights(trained("lora")), weights(trained("recomputed", "train.gradient_checkpointing=true"))
    assert all(torch.equal(stored[name], again[name]) for name in stored)
    assert all(torch.allclose(stored[name], recomputed[name], atol=1e-5) for name in stored), "of the same adapters"


def test_a_batch_that_does_not_divide_is_refused(folder) -> None:
    with pytest.raises(SlimError, match="micro_batch"):
        grpo_arguments(make_config(folder, "uneven", "train.micro_batch=3"), folder)


def test_frozen_policy_does_not_move(folder) -> None:
    config = make_config(folder, "frozen", "train.frozen=true", "train.steps=1")
    result = local.train(config)
    before, after = (
        load_model(config.policy.model_copy(update={"model": str(path)}))[0].state_dict()
        for path in (folder / "model", result.run_dir / "model")
    )
    assert all(torch.equal(before[name], after[name]) for name in before)
