"""Dialogue log, one JSON line per dialogue with its training step, and metrics of each rollout.

slime calls these functions in one process with all samples of a rollout, so the log has one writer. Both return False, so slime's own
logging is unchanged.

Invariants:
    A log is in its run's folder, which is slime's `--save`. A run that saves nothing has a folder of its own below `output_dir`/`name`.
    A resumed run removes the lines of the steps that it plays again, and no line of another run.
"""

import os
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slime.utils.types import Sample

try:
    from slime.observability import logging_utils, metric_utils
except ModuleNotFoundError:  # v0.3.1
    from slime.utils import logging_utils, metric_utils

from slim_rl.backends.slime import RECORD
from slim_rl.backends.slime.context import config_of
from slim_rl.backends.slime.rewards import dialogue_of, dropped, flat
from slim_rl.dialogue.failures import Failures, nothing_measured
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.measures import TRACKED, batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import train_reward
from slim_rl.errors import RunStopped
from slim_rl.runs import RunFolder


def log_rollout(
    rollout_id: int, args: Namespace, samples: Sequence[Any], rollout_extra_metrics: Any, rollout_time: float
) -> bool:
    """slime's ``--custom-rollout-log-function-path``: logs the dialogues played, those of dropped groups too, and metrics under ``dialogue/``.

    Raises:
        RunStopped: the partner takes no more calls, or more than `train.stop_failures` of the rollout's dialogues failed. `driver` then
            saves what was trained before.
    """
    global _begun
    config, samples, _begun = config_of(args), [*flat(samples), *dropped], True
    dropped.clear()
    for sample in samples:
        (sample.metadata or {}).get(RECORD, {})["step"] = rollout_id  # which slime tells nothing else in this process
    if getattr(args, "load_debug_rollout_data", None):  # played and logged by another run
        return False
    dialogues = _log(args, "train", rollout_id, f"{rollout_id}", samples)
    values = batch_metrics(dialogues) | train_reward(config, dialogues)
    _track(args, {f"{TRACKED}{name}": value for name, value in values.items()}, rollout_id, "rollout/step")
    Failures(dialogues).check(config)
    return False


def log_eval_rollout(rollout_id: int, args: Namespace, data: Mapping[str, dict[str, Any]], extra_metrics: Any) -> bool:
    """slime's ``--custom-eval-rollout-log-function-path``: logs the dialogues, with the number of steps trained before them, and
    metrics under ``eval/<dataset>/dialogue/``, where slime has its own.

    Raises RunStopped if the partner takes no more calls, or every game failed. In `data`, which slime averages next, the reward of a
    failed game becomes the mean of those played: it moves no average.
    """
    metrics: dict[str, float] = {}
    stopped: str | None = None
    # slime gives the one before training, and the one after the first step, the same number
    steps = rollout_id + 1 if _begun or rollout_id else 0
    for name, results in data.items():
        dialogues = _log(args, "eval", steps, f"{steps}/{name}", results.get("samples") or [])
        metrics |= {f"eval/{name}/{TRACKED}{measure}": value for measure, value in batch_metrics(dialogues).items()}
        stopped = stopped or Failures(dialogues).stopped or nothing_measured({name: dialogues})
        rewards = [None if dialogue.failed else dialogue.reward for dialogue in dialogues]
        if played := [reward for reward in rewards if reward is not None]:
            results["rewards"] = [fmean(played) if reward is None else reward for reward in rewards]
    _track(args, metrics, steps, "eval/step")
    if stopped:
        raise RunStopped(f"Training stops: {stopped}")
    return False


def _log(args: Namespace, phase: str, step: int, prefix: str, samples: Iterable[Sample]) -> list[Dialogue]:
    """Writes the samples' dialogues to the log, their ids and groups made unique in the run by `prefix`."""
    dialogues, name = [], config_of(args).name
    writer = _writer(args, phase, step)
    for sample in samples:
        if RECORD not in (sample.metadata or {}):
            continue
        dialogue = dialogue_of(sample)
        dialogue.step = step
        dialogue.id, dialogue.group = (f"{name}/{prefix}/{part}" for part in (dialogue.id, dialogue.group))
        writer.append(dialogue)
        dialogues.append(dialogue)
    return dialogues


_writers: dict[Path, DialogueLog] = {}
_begun = False  # whether a training step has been played in this process
_PROCESS = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"  # the folder of a run that saves nothing


def _writer(args: Namespace, phase: str, step: int) -> DialogueLog:
    """Returns the open log of a phase. A resumed run first removes what it wrote from `step` on."""
    config, save = config_of(args), getattr(args, "save", None)
    path = RunFolder(config, Path(save) if save else config.run_dir / _PROCESS).logs / f"{phase}.jsonl"
    if path not in _writers:
        _writers[path] = DialogueLog(path, from_step=step if save else None, seed=config.seed, tokens=config.log.tokens)
    return _writers[path]


def _track(args: Namespace, metrics: dict[str, float], rollout_id: int, step_key: str) -> None:
    if getattr(args, "use_wandb", False):
        import wandb

        wandb.define_metric(f"{TRACKED}*", step_metric="rollout/step")  # as slime does for its own metrics
    step = metric_utils.compute_rollout_step(args, rollout_id)
    logging_utils.log(args, {**metrics, step_key: step}, step_key=step_key)
