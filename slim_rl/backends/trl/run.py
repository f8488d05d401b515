"""One run on one machine, from held-out games before training to held-out games after, resumable at any moment.

runs/<name>/config.yaml           what is run
runs/<name>/checkpoints/          TRL's, marked when whole
runs/<name>/metrics.jsonl         one line a step
runs/<name>/model/                the trained model and its tokenizer
<log.dir>/<name>/train.jsonl      one line a dialogue
<log.dir>/<name>/eval-<step>.jsonl
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from slim_rl.backends.trl.callbacks import last_whole_checkpoint
from slim_rl.backends.trl.rollouts import Rollouts, make_trainer
from slim_rl.config import ROOT_KEY, Config
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.held_out import SCOPE, play_held_out
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError, DataError
from slim_rl.policies.transformers import load_model, load_policy, save_model
from slim_rl.seeds import seed_of


@dataclass(frozen=True)
class Result:
    """Where a run's results are, and its held-out dialogues (empty if train.eval_games is 0)."""

    run_dir: Path
    log_dir: Path
    before: list[Dialogue]
    after: list[Dialogue]


def train(config: Config, fresh: bool = False) -> Result:
    """Trains by TRL, or goes on where an interrupted run of this name and configuration was.

    Raises:
        ConfigError: another configuration has run under this name.
    """
    torch.set_num_threads(config.train.threads)
    run_dir, log_dir = config.run_dir, config.log.dir / config.name
    if fresh:
        shutil.rmtree(run_dir, ignore_errors=True)
        shutil.rmtree(log_dir, ignore_errors=True)
    _claim(run_dir / "config.yaml", config)

    rows = load_rows(config, "train")
    policy, chat = load_policy(config.policy)
    worker = RolloutWorker(config, chat, policy)
    rank = int(os.environ.get("RANK", "0"))

    def held_out(step: int) -> list[Dialogue]:
        if not config.train.eval_games or rank:
            return []
        policy.reseed(seed_of(config.seed, SCOPE))
        eval_rows = load_rows(config, "eval")[: config.train.eval_games]
        if not eval_rows:
            raise DataError("train.eval_games asks for held-out games: name a file in data.eval, or set it to 0.")
        return play_held_out(worker, eval_rows, log_dir / f"eval-{step:06}.jsonl", step=step)

    before = held_out(0)
    checkpoint = last_whole_checkpoint(run_dir / "checkpoints")
    step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    if step < config.train.steps:
        name = "train.jsonl" if rank == 0 else f"train-{rank}.jsonl"
        with DialogueLog(log_dir / name, from_step=step, tokens=config.log.tokens) as log:
            rollouts = Rollouts(worker, policy, rows, log)
            trainer = make_trainer(config, policy.model, chat.tokenizer, rollouts, run_dir)
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if rank == 0:
            save_model(trainer.accelerator.unwrap_model(trainer.model), chat.tokenizer, run_dir / "model")
    elif checkpoint is not None:  # trained to its end before
        policy.model = _restore(policy.model, config, checkpoint)
        if rank == 0:
            save_model(policy.model, chat.tokenizer, run_dir / "model")
    return Result(run_dir, log_dir, before, held_out(max(step, config.train.steps)))


def _restore(start: Any, config: Config, checkpoint: Path) -> Any:
    """The model of a checkpoint, which holds all weights, or the adapters of the model that was started from."""
    if (checkpoint / "adapter_config.json").exists():
        from peft import PeftModel

        return PeftModel.from_pretrained(start, checkpoint)
    return load_model(config.policy.model_copy(update={"model": str(checkpoint)}))[0]


def _claim(path: Path, config: Config) -> None:
    """Writes the configuration, or checks that it is the one this run began with (how long it trains may change)."""
    data = config.model_dump(mode="json")
    if path.exists():
        began = yaml.safe_load(path.read_text(encoding="utf-8"))[ROOT_KEY]
        differ = sorted(_differences(began, data) - {"train.steps", "train.keep_checkpoints", "train.eval_games"})
        if differ:
            raise ConfigError(
                f"The run '{config.name}' in {path.parent} began with other values of {', '.join(differ)}; give this one "
                "another name (--set name=...) or start anew with --fresh."
            )
    config.write(path)


def _differences(a: Any, b: Any, prefix: str = "") -> set[str]:
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {prefix}
    keys = a.keys() | b.keys()
    return set().union(*(_differences(a.get(k), b.get(k), f"{prefix}.{k}" if prefix else k) for k in keys))
