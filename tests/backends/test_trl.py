"""GRPO through the real TRL: dialogues in the order of its prompts, failed ones without a say, what is paid, resumption to the bit."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch

from slim_rl import train
from slim_rl.backends import Result
from slim_rl.backends.export import export
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.checkpoints import last_whole_checkpoint
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.config import parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.errors import DataError, SlimError
from slim_rl.policies.transformers import load_model
from tests.backends.played import Forger
from tests.backends.trl_setup import batch, checkpoints, everything, make_config, make_rollouts

from tests.backends.trl_setup import metrics, same, trained, weights  # isort: skip
from tests.fakes.disk import largest_file


@pytest.mark.parametrize("kind", ["shy", "self"])
def test_trl_rollouts_come_in_the_order_of_the_prompts(folder: Path, kind: str) -> None:
    trainer, rollouts = make_rollouts(make_config(folder, f"rows-{kind}", f"partner.kind={kind}"), folder)
    names = [name for name in rollouts.names()[:2] for _ in range(4)]
    output = rollouts(names, trainer)
    lines = list(read_log(folder / f"rows-{kind}.jsonl"))
    assert [f"{line.game_id}/{line.seat}" for line in lines] == names
    assert output["given"] == [line.reward for line in lines]
    # a seat that never spoke read nothing
    assert output["prompt_ids"] == [each.prompt_ids or [rollouts.worker.chat.end_id] for each in rollouts.dialogues]
    if kind == "self":  # two rows per game, with one reward, and a group per seat
        groups = [dialogue.group for dialogue in rollouts.dialogues]
        assert output["given"][:4] == output["given"][4:] and output["prompt_ids"][0] != output["prompt_ids"][4]
        assert len(set(groups[:4])) == len(set(groups[4:])) == 1 and groups[0] != groups[4]


def test_too_many_failures_stop_the_run_once_they_are_logged(folder: Path) -> None:
    trainer, rollouts = make_rollouts(make_config(folder, "down"), folder, Forger(fails=1))
    with pytest.raises(SlimError, match="down"):
        rollouts([name for name in rollouts.names()[:2] for _ in range(4)], trainer)
    assert len(list(read_log(folder / "down.jsonl"))) == 8


@pytest.mark.parametrize("reward", ["agreed", "turn_credit"])
def test_a_run_logs_the_games_reward_and_beside_it_what_was_paid(folder: Path, reward: str) -> None:
    """Of a policy that stays as it was, and of one that learns."""
    frozen = reward == "agreed"
    changes = f"train.reward={reward}", f"train.frozen={frozen}", "train.steps=1", "train.eval_games=0"
    config = make_config(folder, reward, *changes)
    result, start = local.train(config), load_model(config.policy)[0].state_dict()
    after = load_model(config.policy.model_copy(update={"model": f"{result.run_dir}/model"}))[0].state_dict()
    assert same(start, after) is frozen
    [line], dialogues = metrics(result), trained(result)
    assert line["reward"] == pytest.approx(sum(d.reward or 0 for d in dialogues) / len(dialogues))
    if reward == "agreed":
        assert line["train_reward"] == pytest.approx(line["agreed"]) != pytest.approx(line["reward"])


def test_entropy_bonus_moves_dialogues_without_an_advantage(folder: Path) -> None:
    def moved(coefficient: float) -> bool:
        config = make_config(folder, f"entropy-{coefficient}", f"trl.overrides={{entropy_coef: {coefficient}}}")
        trainer, _ = make_rollouts(config, folder)
        inputs = batch(trainer) | {"idle": True}
        inputs["advantages"] = torch.zeros_like(inputs["advantages"])
        trainer.accelerator.gradient_state._set_sync_gradients(False)
        trainer.model.zero_grad()
        trainer._compute_loss(trainer.model, inputs).backward()
        return any(weights.grad is not None and weights.grad.any() for weights in trainer.model.parameters())

    assert moved(0.1) and not moved(0.0)


def test_shortest_game_and_config_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = parse_config({"environment": "examples.secret_number.SecretNumber"}, ["train.steps=1"])
    small = {"games_per_step": 2, "group_size": 2, "micro_batch": 4}
    result = train(config.changed(data={"num_train": 4}, limits={"turn_tokens": 4}, train=small))
    assert result is not None and (result.run_dir / "model").is_dir() and not result.after


def test_lora_trains_adapters_and_saves_a_whole_model(folder: Path) -> None:
    def run(name: str, *more: str) -> Result:
        changes = ("train.lora={r: 2, alpha: 4}", "train.steps=2", "train.eval_games=0", *more)
        return local.train(make_config(folder, name, *changes))

    result = run("lora")
    saved = make_config(folder, "lora", f"policy.model={result.run_dir}/model")
    assert not any("lora" in name for name in load_model(saved.policy)[0].state_dict())
    stored = weights(result.run_dir)
    export(result.run_dir, folder / "merged")
    merged = weights(folder / "merged")
    assert all(torch.allclose(merged.pop(name), stored[name], atol=1e-5) for name in stored) and not merged
    shutil.rmtree(result.run_dir / "model")
    assert same(stored, weights(run("lora").run_dir)), "of the same adapters"
    recomputed = weights(run("recomputed", "train.gradient_checkpointing=true").run_dir)
    assert all(torch.allclose(stored[name], recomputed[name], atol=1e-5) for name in stored)


def lines(run: Any) -> list[tuple[Any, ...]]:
    return [(line.step, line.game_id, line.reward, line.stop_reason) for line in trained(run)]


def test_run_interrupted_and_on_a_full_disk_ends_the_same(
    folder: Path, whole: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_kept = "train.keep_checkpoints=1"
    short, config = make_config(folder, "run", "train.steps=2", one_kept), make_config(folder, "run", one_kept)
    after_two = weights(local.train(short).run_dir)
    shutil.rmtree(config.run_dir / "model")  # as if stopped between the last checkpoint and the model
    assert same(weights(local.train(short).run_dir), after_two) and len(lines(config)) == 2 * 8, "not played again"
    model, play = everything(config.run_dir / "model"), Rollouts.__call__

    def breaks_at_step_3(self: Rollouts, prompts: Any, trainer: Any) -> Any:
        if trainer.state.global_step == 3:
            raise InterruptedError
        return play(self, prompts, trainer)

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(Rollouts, "__call__", breaks_at_step_3)
        local.train(config)
    assert [line["step"] for line in metrics(config)] == [0, 1, 2]
    folder_of = config.run_dir / "checkpoints"
    (folder_of / "checkpoint-3").mkdir()
    (folder_of / "checkpoint-3" / "trainer_state.json").write_text('{"epoch":')  # torn: not written to its end
    (folder_of / "checkpoint-2-kept").mkdir()  # somebody's copy, under another name
    assert last_whole_checkpoint(folder_of).name == "checkpoint-2"  # type: ignore[union-attr]
    assert not (folder_of / "checkpoint-3").exists() and (folder_of / "checkpoint-2-kept").exists()
    (folder_of / "checkpoint-2-kept").rmdir()

    size = (folder_of / "checkpoint-2" / "model.safetensors").stat().st_size
    with largest_file(size - 1), pytest.raises(DataError, match=r"Cannot write the checkpoint .*checkpoint-4"):
        local.train(config)
    assert everything(config.run_dir / "model") == model
    assert last_whole_checkpoint(folder_of).name == "checkpoint-2"  # type: ignore[union-attr]

    resumed = local.train(config)
    assert same(weights(resumed.run_dir), weights(whole.run_dir)) and not same(weights(resumed.run_dir), after_two)
    assert lines(whole) == lines(resumed) and len(lines(whole)) == 4 * 8
    assert (resumed.log_dir / "train.jsonl").read_bytes().count(b"\n") == 4 * 8, "no step's lines stand twice"
    assert len(whole.before) == len(whole.after) == 4 and checkpoints(config) == ["checkpoint-4"]
    assert [line["step"] for line in metrics(config)] == [0, 1, 2, 3]
    told = {"reward", "questions", "valid_proposals", "agreed", "entropy", "tokens_per_second"}
    assert told <= metrics(config)[0].keys()
