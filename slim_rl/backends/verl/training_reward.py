"""Measures and training rewards of a step's dialogues for verl's newer trainer.

Rewards are written here only if they depend on the whole step: shuffled rewards, advantages of single turns, and self-play whose seats
are rewarded differently. The agent loop returns all others at once.

    rm_scores   training reward of a row, at its last token; with advantages per turn these, at each token
    uid         group that a row is compared in: in self-play one per seat

Dialogues are taken in the order of their ids, so that a step is shuffled in one way, however verl has balanced its rows. `stop`
imports this module in the trainer's process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
import transfer_queue as tq
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tracking import Tracking

from slim_rl.backends.step_line import played_step
from slim_rl.config import Config, load_config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.tracked import TRACKED, batch_metrics
from slim_rl.dialogue.training_reward import by_token, make_training_reward

_config = functools.cache(load_config)


def pay(trainer: Any, batch: Any, metrics: dict[str, Any]) -> None:
    """Adds the measures of a step's dialogues to its metrics, and overwrites the rewards of its rows."""
    path = (trainer.config.get("slim_rl") or {}).get("config")
    if not path:
        return
    config = _config(path)
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    where = {"keys": keys, "partition_id": batch.partition_id}
    data = tq.kv_batch_get(**where, select_fields=["extra_fields", "response_mask"])
    dialogues = [Dialogue.from_dict(extra["dialogue"]) for extra in data.pop("extra_fields").tolist()]
    metrics |= {f"{TRACKED}{name}": value for name, value in batch_metrics(dialogues).items()}
    training_reward = make_training_reward(config)
    if not training_reward.as_game:
        paid = [reward for dialogue in dialogues if (reward := training_reward.reward(dialogue)) is not None]
        metrics |= {f"{TRACKED}train_reward": fmean(paid)} if paid else {}
    if not training_reward.takes_the_step:
        return
    lengths = [len(mask) for mask in data["response_mask"].unbind()]
    scores = [torch.tensor(row) for row in token_rewards(dialogues, lengths, config, trainer.global_steps - 1)]
    fields = {
        "rm_scores": torch.nested.as_nested_tensor(scores, layout=torch.jagged),
        "uid": NonTensorStack(*(dialogue.group for dialogue in dialogues)),
    }
    tq.kv_batch_put(**where, fields=TensorDict(fields, batch_size=len(keys)))


def token_rewards(
    dialogues: Sequence[Dialogue], lengths: Sequence[int], config: Config, step: int
) -> list[list[float]]:
    """Returns the rewards at each token of responses of these lengths; the first `step` is 0.

    The reward stands at the last token, or each turn's advantage at the turn's tokens.
    """
    order = sorted(range(len(dialogues)), key=lambda row: dialogues[row].id)
    ordered = [dialogues[row] for row in order]
    step_rewards = make_training_reward(config)(ordered, step)
    out = [[0.0] * length for length in lengths]
    for place, row in enumerate(order):
        if step_rewards.advantages is None:
            out[row][-1] = step_rewards.rewards[place] or 0.0
        else:
            out[row] = by_token(ordered[place], step_rewards.advantages[place], lengths[row])
    return out


def after_training_reward(compute: Any) -> Any:
    """Wraps verl's `_compute_advantage`, and sets the step's rewards before it."""

    @functools.wraps(compute)
    def computed(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        pay(self, batch, metrics)
        return compute(self, batch, metrics)

    return computed


def by_played_step(log: Any) -> Any:
    """Wraps verl's `Tracking.log` so that a step has the same number as in the dialogue log.

    verl counts the updates after it. Held-out games (verl's `val-...`) keep the number of updates before they were played.
    """

    @functools.wraps(log)
    def logged(self: Any, data: dict[str, Any], step: int, *args: Any, **kwargs: Any) -> None:
        held_out = {name: value for name, value in data.items() if name.startswith("val-")}
        if trained := {name: value for name, value in data.items() if name not in held_out}:
            log(self, trained, played_step(step), *args, **kwargs)
        if held_out:
            log(self, held_out, step, *args, **kwargs)

    return logged


Tracking.log = by_played_step(Tracking.log)
PPOTrainer._compute_advantage = after_training_reward(PPOTrainer._compute_advantage)
