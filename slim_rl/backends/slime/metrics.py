"""Dialogue log, one JSON line per dialogue with its training step, and metrics of each rollout.

slime calls these functions in one process with all samples of a rollout, so the log has one writer. Both return False, so slime's own
logging is unchanged.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slime.utils.types import Sample

from slim_rl.backends.slime.compat import compute_rollout_step, log_metrics
from slim_rl.backends.slime.fully_async import STALENESS, call_off
from slim_rl.backends.slime.hook import RECORD
from slim_rl.backends.slime.rewards import failed, flat, rollout_failures
from slim_rl.backends.slime.setup import config_of
from slim_rl.config import Config
from slim_rl.dialogue.failures import Failures, nothing_measured
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.tracked import TRACKED, batch_metrics
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import RunStopped


def log_rollout(
    rollout_id: int, args: Namespace, samples: Sequence[Any], rollout_extra_metrics: Any, rollout_time: float
) -> bool:
    """slime's ``--custom-rollout-log-function-path``: logs the dialogues of `samples`, and metrics under ``dialogue/``. Then
    it empties `rollout_failures`.

    Raises:
        RunStopped: the partner takes no more calls, or more than `train.stop_failures` of the rollout's dialogues failed. `driver` then
            saves what was trained before.
    """
    global _begun
    config, samples, _begun = config_of(args), list(flat(samples)), True
    for sample in samples:
        (sample.metadata or {}).get(RECORD, {})["step"] = rollout_id  # which slime tells nothing else in this process
    if getattr(args, "load_debug_rollout_data", None):
        return False
    try:
        dialogues = _log(config, "train", rollout_id, f"{rollout_id}", samples)
        # without the group filter nothing was counted yet, and these dialogues are all that ended
        ended = rollout_failures if rollout_failures.count else Failures(dialogues)
        values = _measure(dialogues, ended) | _age(samples) | _paid(dialogues, config)
        metrics = {f"{TRACKED}{name}": value for name, value in values.items()}
        _track(args, metrics, rollout_id, "rollout/step")
        ended.check(config)
        ended.warn(config)
    except RunStopped:
        call_off()
        raise
    finally:
        rollout_failures.clear()
    return False


def log_eval_rollout(rollout_id: int, args: Namespace, data: Mapping[str, dict[str, Any]], extra_metrics: Any) -> bool:
    """slime's ``--custom-eval-rollout-log-function-path``: logs the dialogues, with the number of steps trained before them, and
    metrics under ``eval/<dataset>/dialogue/``, where slime has its own.

    Raises RunStopped if the partner takes no more calls, or every game failed. In `data`, which slime averages next, the reward of a failed game becomes the mean of those played: it moves no average.
    """
    config = config_of(args)
    metrics: dict[str, float] = {}
    stopped: str | None = None
    # slime gives the one before training, and the one after the first step, the same number
    steps = rollout_id + 1 if _begun or rollout_id else 0
    for name, results in data.items():
        samples, rewards = results.get("samples") or [], results["rewards"]
        dialogues = _log(config, "eval", steps, f"{steps}/{name}", samples)
        ended = Failures(dialogues)
        ended.warn(config)
        measured = _measure(dialogues, ended)
        metrics |= {f"eval/{name}/{TRACKED}{measure}": value for measure, value in measured.items()}
        stopped = stopped or ended.stopped or nothing_measured({name: dialogues})
        played = [reward for reward, sample in zip(rewards, samples, strict=False) if not failed(sample)]
        if played and len(played) < len(samples):
            mean = fmean(played)
            results["rewards"] = [
                mean if failed(sample) else reward for reward, sample in zip(rewards, samples, strict=True)
            ]
    _track(args, metrics, steps, "eval/step")
    if stopped:
        call_off()
        raise RunStopped(f"Training stops: {stopped}")
    return False


def _measure(dialogues: Sequence[Dialogue], ended: Failures) -> dict[str, float]:
    """`batch_metrics` of the dialogues; failures and cost of all that ended, those of dropped groups too."""
    failures = {f"failure/{reason}": float(count) for reason, count in ended.reasons.items()}
    cost = {} if ended.cost_usd is None else {"cost_usd": ended.cost_usd}
    return batch_metrics(dialogues) | {"ended": float(ended.count), "failed": ended.failed_share} | failures | cost


def _paid(dialogues: Sequence[Dialogue], config: Config) -> dict[str, float]:
    """`train_reward`, where that is something else than the game's reward. No shuffling moves this mean."""
    training_reward = make_training_reward(config)
    paid = [reward for dialogue in dialogues if (reward := training_reward.reward(dialogue)) is not None]
    return {"train_reward": fmean(paid)} if paid and not training_reward.as_game else {}


def _age(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the age of dialogues in a fully asynchronous rollout.

    `staleness_mean` and `staleness_max` are in training steps; `mixed_weights` is the share of dialogues during which the weights changed.
    """
    steps = [sample.metadata[STALENESS] for sample in samples if STALENESS in (sample.metadata or {})]
    if not steps:
        return {}
    mixed = fmean(len(set(sample.weight_versions)) > 1 for sample in samples)
    return {"staleness_mean": fmean(steps), "staleness_max": float(max(steps)), "mixed_weights": mixed}


def _log(config: Config, phase: str, step: int, prefix: str, samples: Iterable[Sample]) -> list[Dialogue]:
    """Writes the samples' dialogues to the log, their ids and groups made unique in the run by `prefix`."""
    dialogues = []
    writer = _writer(config, phase, step)
    for sample in samples:
        if (record := (sample.metadata or {}).get(RECORD)) is None:
            continue
        dialogue = Dialogue.from_dict(record)
        dialogue.step = step
        dialogue.id, dialogue.group = (f"{config.name}/{prefix}/{part}" for part in (dialogue.id, dialogue.group))
        at = len(sample.tokens) - sample.response_length
        dialogue.prompt_ids, dialogue.response_ids = sample.tokens[:at], sample.tokens[at:]
        dialogue.loss_mask, dialogue.logprobs = list(sample.loss_mask or ()), list(sample.rollout_log_probs or ())
        writer.append(dialogue)
        dialogues.append(dialogue)
    return dialogues


_writers: dict[Path, DialogueLog] = {}
_begun = False  # whether a training step has been played in this process


def _writer(config: Config, phase: str, step: int) -> DialogueLog:
    """The open log of a phase. A resumed run first removes what an earlier try wrote from `step` on."""
    path = config.log.dir / f"{phase}.jsonl"
    if path not in _writers:
        _writers[path] = DialogueLog(path, from_step=step if phase == "train" else None, tokens=config.log.tokens)
    return _writers[path]


def _track(args: Namespace, metrics: dict[str, float], rollout_id: int, step_key: str) -> None:
    if getattr(args, "use_wandb", False):
        import wandb

        wandb.define_metric(f"{TRACKED}*", step_metric="rollout/step")  # as slime does for its own metrics
    log_metrics(args, {**metrics, step_key: compute_rollout_step(args, rollout_id)}, step_key=step_key)
