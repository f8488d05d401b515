"""Ends a run of verl's whose partner takes no more calls (budget spent, endpoint down), after saving it.

Invariants:

    The step in which the run stopped is not trained on; a checkpoint of the steps before it exists when the run ends.
    A resumed run plays that step's games first: none is left out.
    A step whose loss or gradient is not finite ends the run, and nothing is saved after it (verl itself continues).

The agent loops, in separate processes, leave a mark in the run's folder. The trainer looks for it when a step's dialogues are
played and the engines have gone to sleep, which is the state that verl itself saves in. verl imports this module in the trainer's process,
as the checkpoint callback that its config names (`trainer.checkpoint_callback_class`).
"""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from slim_rl.backends.verl import training_reward  # noqa: F401  (it too has a part in the trainer's process)
from slim_rl.backends.verl.names import STOP_MARK
from slim_rl.errors import Diverged, RunStopped


class SaveBeforeStop(CheckpointCallback):  # type: ignore[misc]
    """Nothing to do at a save: naming it in verl's config has this module imported."""


def look(trainer: Any) -> None:
    """Raises RunStopped, with the steps trained so far saved, if the agent loops have left their mark."""
    path = (trainer.config.get("slim_rl") or {}).get("config")
    mark = Path(path).parent / STOP_MARK if path else None
    if mark is None or not mark.exists():
        return
    trained = trainer.global_steps - 1
    folder = Path(trainer.config.trainer.default_local_dir)
    message = f"Training stops: {mark.read_text(encoding='utf-8')}"
    if trained > 0 and not (folder / f"global_step_{trained}").exists():
        trainer.global_steps = trained
        if trainer.trainer_mode == "sync":  # the others save the games they have drawn, and play them when they go on
            trainer.train_dataloader.state_dict = lambda: trainer.before_the_draw
        trainer._save_checkpoint()
    raise RunStopped(message + (f" The {trained} steps before it are saved." if trained > 0 else ""))


def before_the_draw(prepare: Any) -> Any:
    """Wraps verl's `prepare_step`, which draws a step's games, and remembers the dataloader's position before it."""

    @functools.wraps(prepare)
    def remembered(self: Any) -> Any:
        self.before_the_draw = self.train_dataloader.state_dict()
        return prepare(self)

    return remembered


def before_training(balance: Any) -> Any:
    """Wraps verl's `_balance_batch`, the first operation on a step's dialogues, and checks for a stop before it."""

    @functools.wraps(balance)
    def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
        look(self)
        return balance(self, *args, **kwargs)

    return looked


def after_an_error(step_once: Any) -> Any:
    """Wraps verl's `_step_once`, and checks for a stop after verl's own error (for example if every dialogue failed)."""

    @functools.wraps(step_once)
    def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return step_once(self, *args, **kwargs)
        except (RunStopped, Diverged):
            raise
        except Exception:
            with contextlib.suppress(Exception):
                self.on_sample_end()
            look(self)
            raise

    return looked


def after_the_update(update: Any) -> Any:
    """Wraps verl's `_update_actor`, and raises Diverged if its loss or gradient is not finite."""

    @functools.wraps(update)
    def looked(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        result = update(self, batch, metrics)
        for name, value in metrics.items():
            if name.startswith("actor/") and name.endswith(("loss", "grad_norm")) and not math.isfinite(value or 0.0):
                raise Diverged(
                    f"Training stops at step {self.global_steps - 1}: {name} is {value}. Nothing is saved after it; lower "
                    "train.learning_rate and start over under another name (--set name=...)."
                )
        return result

    return looked


PPOTrainer.prepare_step = before_the_draw(PPOTrainer.prepare_step)
PPOTrainer._balance_batch = before_training(PPOTrainer._balance_batch)
PPOTrainer._update_actor = after_the_update(PPOTrainer._update_actor)
PPOTrainer._step_once = after_an_error(PPOTrainer._step_once)
