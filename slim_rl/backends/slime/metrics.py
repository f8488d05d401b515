"""The dialogue log, one JSONL line a dialogue with its training step, and the metrics of each rollout under ``dialogue/``.

slime calls these with all samples of a rollout, in one process: so the log has one writer. Both return False, which leaves
slime's own logging as it is.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from slime.observability import logging_utils
from slime.observability.metric_utils import compute_rollout_step
from slime.utils.types import Sample

from slim_rl.backends.slime.hook import RECORD
from slim_rl.backends.slime.rewards import failed, flat
from slim_rl.backends.slime.setup import config_of
from slim_rl.backends.slime.tally import Tally, tally
from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.questions.log import DialogueLog
from slim_rl.questions.measures import batch_metrics


def log_rollout(
    rollout_id: int, args: Namespace, samples: Sequence[Any], rollout_extra_metrics: Any, rollout_time: float
) -> bool:
    """slime's ``--custom-rollout-log-function-path``. Ends the rollout's tally of failures.

    Raises:
        SlimError: more than `train.stop_failures` of the rollout's dialogues failed.
    """
    config = config_of(args)
    try:
        if not getattr(args, "load_debug_rollout_data", None):
            dialogues = _log(config, "train", rollout_id, f"{rollout_id}", flat(samples))
            metrics = {f"dialogue/{key}": value for key, value in (rollout_metrics(dialogues) | _failures(tally)).items()}
            _track(args, metrics, rollout_id, "rollout/step")
        tally.check(config)
        tally.warn(config)
    finally:
        tally.clear()
    return False


def log_eval_rollout(rollout_id: int, args: Namespace, data: Mapping[str, dict[str, Any]], extra_metrics: Any) -> bool:
    """slime's ``--custom-eval-rollout-log-function-path``. Metrics stand under ``eval/<dataset>/dialogue/``, on slime's axis.

    In `data`, which slime averages next, the reward of a failed game is set to the mean of those played: it moves no average.
    """
    config = config_of(args)
    metrics: dict[str, float] = {}
    for name, results in data.items():
        samples = results.get("samples") or []
        dialogues = _log(config, "eval", rollout_id, f"{rollout_id}/{name}", samples)
        ended = Tally()
        for dialogue in dialogues:
            ended.add(dialogue)
        measured = rollout_metrics(dialogues) | _failures(ended)
        metrics |= {f"eval/{name}/dialogue/{key}": value for key, value in measured.items()}
        ended.warn(config)
        played = [r for r, sample in zip(results["rewards"], samples, strict=True) if not failed(sample)]
        if played:
            mean = sum(played) / len(played)
            pairs = zip(results["rewards"], samples, strict=True)
            results["rewards"] = [mean if failed(sample) else reward for reward, sample in pairs]
    _track(args, metrics, rollout_id, "eval/step")
    return False


def rollout_metrics(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """What is told of one rollout's dialogues: `questions.measures.batch_metrics`, and what a long run is watched for."""
    if not dialogues:
        return {}
    partner = [turn for dialogue in dialogues for turn in dialogue.turns if turn.role == "partner"]
    usages = [turn.usage for turn in partner if turn.usage]
    spread = {
        "turns": [len(dialogue.turns) for dialogue in dialogues if not dialogue.failed],
        "partner_seconds": [turn.seconds for turn in partner],
        "seconds": [dialogue.seconds for dialogue in dialogues],
    }
    metrics = dict(batch_metrics(dialogues))
    for name, values in spread.items():
        if values:
            metrics[f"{name}_p50"], metrics[f"{name}_p95"] = (float(q) for q in np.percentile(values, (50, 95)))
    for name in ("cost_usd", "retries", "malformed", "input_tokens", "cached_tokens", "output_tokens"):
        if usages:
            metrics[f"partner/{name}"] = float(sum(usage.get(name) or 0 for usage in usages))
    return metrics


def _failures(ended: Tally) -> dict[str, float]:
    """Over all dialogues that ended, those of dropped groups too."""
    counts = {f"failed/{reason}": float(count) for reason, count in ended.reasons.items()}
    return {"failed": ended.failed_share, "ended": float(ended.played + ended.failed)} | counts


def _log(config: Config, phase: str, step: int, prefix: str, samples: Iterable[Sample]) -> list[Dialogue]:
    """Writes the samples' dialogues to the log, their ids and groups made unique in the run by `prefix`."""
    dialogues = []
    with DialogueLog(config.log.dir / f"{phase}.jsonl") as writer:
        for sample in samples:
            if (record := (sample.metadata or {}).get(RECORD)) is None:
                continue
            dialogue = Dialogue.from_dict(record)
            dialogue.step = step
            dialogue.id, dialogue.group = (f"{config.name}/{prefix}/{part}" for part in (dialogue.id, dialogue.group))
            if config.log.tokens:
                at = len(sample.tokens) - sample.response_length
                dialogue.prompt_ids, dialogue.response_ids = sample.tokens[:at], sample.tokens[at:]
                dialogue.loss_mask = list(sample.loss_mask or [])
                dialogue.logprobs = list(sample.rollout_log_probs or [])
            writer.append(dialogue)
            dialogues.append(dialogue)
    return dialogues


def _track(args: Namespace, metrics: dict[str, float], rollout_id: int, step_key: str) -> None:
    if getattr(args, "use_wandb", False):
        import wandb

        wandb.define_metric("dialogue/*", step_metric="rollout/step")  # slime has told W&B so of its own families
    logging_utils.log(args, {**metrics, step_key: compute_rollout_step(args, rollout_id)}, step_key=step_key)
