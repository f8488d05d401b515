"""Additions to verl, in every process that loads a model's config (`actor_rollout_ref.model.external_lib`), the trainer's among them.

- a separate reference model: verl 0.9.1 builds the reference from the policy's checkpoint
- GRPO without the bare reward of a group's only played dialogue, which verl takes for an advantage
- a run whose partner takes no more calls is saved and ends: the agent loops, in other processes, leave a mark in the run's folder, and
  the trainer looks for it before it learns from a step's dialogues
"""

import functools
import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl.trainer.ppo.v1 import trainer_base
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from slim_rl.backends.verl import reward  # noqa: F401  (registers itself)
from slim_rl.backends.verl.settings import REFERENCE_VARIABLE, STOP_MARK
from slim_rl.config import WITHOUT_GROUPS
from slim_rl.errors import RunStopped


def check_stop(trainer: Any, untrained: int = 1) -> None:
    """Raises RunStopped, with the steps trained so far saved, if the agent loops have left their mark.

    Args:
        untrained: 1 within a step, 0 between two.
    """
    mark = Path(trainer.config.slim_rl.config).parent / STOP_MARK
    if not mark.exists():
        return
    trained = trainer.global_steps - untrained
    if trained > 0 and not (Path(trainer.config.trainer.default_local_dir) / f"global_step_{trained}").exists():
        trainer.global_steps = trained
        trainer._save_checkpoint()
    saved = f" The {trained} steps before it are saved." if trained > 0 else ""
    raise RunStopped(f"Training stops: {mark.read_text(encoding='utf-8')}{saved}")


def before_training(balance: Any) -> Any:
    """Wraps verl's `_balance_batch`, the first operation on a step's dialogues, and checks for a stop before it."""

    @functools.wraps(balance)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_stop(self)
        return balance(self, *args, **kwargs)

    return checked


def after_an_error(step: Any, untrained: int = 1) -> Any:
    """Wraps verl's `_step_once` or `_validate`, and checks for a stop after verl's own error, as where every dialogue failed."""

    @functools.wraps(step)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return step(self, *args, **kwargs)
        except RunStopped:
            raise
        except Exception:
            with suppress(Exception):
                self.on_sample_end()  # the engines sleep, as when verl itself saves
            check_stop(self, untrained)
            raise

    return checked


def without_lone_dialogues(compute: Any) -> Any:
    """Wraps verl's advantages of a batch: if verl compares groups, 0 for a group's only dialogue that did not fail."""

    @functools.wraps(compute)
    def computed(data: Any, batch_keys: list[str], adv_estimator: Any, *args: Any, **kwargs: Any) -> Any:
        data = compute(data, batch_keys, adv_estimator, *args, **kwargs)
        if adv_estimator not in WITHOUT_GROUPS:
            groups = Counter(uid for uid, _ in {tuple(key.rsplit("_", 2)[:2]) for key in batch_keys})
            for row, key in enumerate(batch_keys):
                if groups[key.rsplit("_", 2)[0]] == 1:
                    data.batch["advantages"][row] = data.batch["returns"][row] = 0.0
        return data

    return computed


class ReferenceWorker(TrainingWorker):
    """verl's worker for the reference model, on the checkpoint that REF_MODEL names."""

    def __init__(self, config: Any) -> None:
        path = os.environ.get(REFERENCE_VARIABLE)
        super().__init__(config=with_reference(config, path) if path else config)


def with_reference(config: Any, path: str) -> Any:
    """Copies a TrainingWorkerConfig with the checkpoint at `path` as its model."""
    files = dict.fromkeys(("path", "hf_config_path", "tokenizer_path"), path)
    unread = dict.fromkeys(("local_path", "hf_config", "generation_config"))
    return replace(config, model_config=replace(config.model_config, **files, **unread))


ActorRolloutRefWorker.ref_worker_cls = ReferenceWorker
trainer_base.PPOTrainer._balance_batch = before_training(trainer_base.PPOTrainer._balance_batch)
trainer_base.PPOTrainer._step_once = after_an_error(trainer_base.PPOTrainer._step_once)
trainer_base.PPOTrainer._validate = after_an_error(trainer_base.PPOTrainer._validate, untrained=0)
trainer_base.compute_advantage_for_multi_trajectories = without_lone_dialogues(
    trainer_base.compute_advantage_for_multi_trajectories
)
