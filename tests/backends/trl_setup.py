"""A tiny game and model that TRL trains in a second a step: its trainer with our rollouts, whole runs, and what they leave."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
import yaml
from safetensors.torch import load_file

from slim_rl.backends import Result
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.policies.transformers import TransformersPolicy, load_model
from tests.fakes.openai_server import OpenAIServer

TINY = yaml.safe_load("""
seed: 1
game: {n: 2, scales: false, max_turns: 6, max_errors: 2, rules: none, hardness: 1.1}
data: {num_train: 40, num_eval: 6}
partner: {kind: shy, args: {accept_fraction: 0.0}}
limits: {turn_tokens: 48, dialogue_tokens: 240}
train: {steps: 4, games_per_step: 2, group_size: 4, micro_batch: 4, learning_rate: 0.001, save_every: 2, eval_games: 4}
warmstart: {player: {thinks: never}, games: 300, lessons: {seen: 100}, epochs: 5, batch_size: 16, learning_rate: 0.005, hidden_size: 64, layers: 1}
""")


def make_config(folder: Path, name: str, *overrides: str) -> Config:
    data = json.loads(json.dumps(TINY))
    data["data"] |= {"train": str(folder / "train.jsonl"), "eval": str(folder / "eval.jsonl")}
    data |= {"name": name, "output_dir": str(folder / "runs"), "policy": {"model": str(folder / "model")}}
    return parse_config(data, overrides)


def paid_config(folder: Path, name: str, server: OpenAIServer, *overrides: str, **openai: Any) -> Config:
    """A run whose partner is behind an endpoint, with a checkpoint every 50 steps: none would be there when the run stops."""
    openai = {"base_url": server.url, "concurrency": 1, **openai}
    changes = [f"partner.openai.{key}={json.dumps(value)}" for key, value in openai.items()]
    usual = ("partner.kind=openai", "train.save_every=50", "train.eval_games=0")
    return make_config(folder, name, *usual, *changes, *overrides)


def make_rollouts(
    config: Config, folder: Path, partner: Any = None, played: list[Dialogue] | None = None
) -> tuple[Any, Rollouts]:
    """TRL's trainer, and the rollouts that it asks. `played`: what they give in place of dialogues that they play."""

    class Fixed(Rollouts):
        def _play(self, prompts: Any, step: int, rank: int) -> list[Dialogue]:
            return super()._play(prompts, step, rank) if played is None else played

    model, tokenizer = load_model(config.policy)
    chat = Chat(tokenizer)
    policy = TransformersPolicy(model, chat.stop_ids, pad_id=tokenizer.pad_token_id)
    log = DialogueLog(folder / f"{config.name}.jsonl")
    rollouts = Fixed(RolloutWorker(config, chat, policy, partner=partner), policy, load_rows(config), log)
    return make_trainer(config, model, tokenizer, rollouts, folder / config.name), rollouts


def batch(trainer: Any) -> dict[str, Any]:
    """The step's dialogues as TRL makes a batch of them."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))  # type: ignore[no-any-return]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of a run's model, or of a checkpoint."""
    model = folder / "model" if (folder / "model").is_dir() else folder
    return load_file(model / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def trained(run: Result | Config) -> list[Dialogue]:
    """The dialogues in a run's log of training."""
    return list(read_log(run.run_dir / "logs" / "train.jsonl"))


def metrics(run: Result | Config) -> list[dict[str, Any]]:
    """The run's numbers, a step each."""
    return [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]


def checkpoints(config: Config) -> list[str]:
    return [path.name for path in (config.run_dir / "checkpoints").glob("checkpoint-*")]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
