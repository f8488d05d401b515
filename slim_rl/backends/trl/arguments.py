"""TRL's arguments from a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from slim_rl.config import Config
from slim_rl.config.trainers import KEYS, values
from slim_rl.errors import ConfigError, SlimError, did_you_mean
from slim_rl.ranks import run_size


def micro_batch(config: Config, processes: int) -> int:
    """Dialogues a forward and backward pass of one process. Raises SlimError if a step's do not divide so."""
    train = config.train
    if processes > train.dialogues:
        raise SlimError(
            f"A step has train.games_per_step × train.group_size = {train.dialogues} dialogues, fewer than the {processes} processes that "
            "share them: lower train.processes, or raise one of those."
        )
    micro = min(train.micro_batch, train.dialogues // processes)
    if train.dialogues % (micro * processes):
        raise SlimError(
            f"train.games_per_step × train.group_size = {train.dialogues} dialogues a step do not divide into micro-batches of "
            f"{micro} on {processes} process(es); choose a train.micro_batch that divides them."
        )
    return micro


def grpo_arguments(config: Config, run_dir: Path) -> GRPOConfig:
    """TRL's arguments for `config`; a field that the table of keys sets cannot be set here too, Python refuses it.

    Raises:
        SlimError: the batch does not divide, or the environment does not say among how many processes.
    """
    train = config.train
    processes = run_size()
    micro = micro_batch(config, processes)
    accumulation = train.dialogues // (micro * processes)
    on_gpu = torch.cuda.is_available()
    # Read only by loss types that divide by it; the dialogues themselves obey `limits`.
    longest = config.limits.dialogue_tokens or config.limits.context_tokens or 4096
    settled = config.changed(train={"micro_batch": micro}, limits={"dialogue_tokens": longest})
    ours = dict(
        **values(settled, "trl"),
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        output_dir=str(run_dir / "checkpoints"),
        run_name=config.name,
        # The names come shuffled by our own seed, the seats of a game side by side.
        shuffle_dataset=False,
        use_cpu=not on_gpu,
        bf16=on_gpu and config.policy.dtype == "bfloat16",
        logging_steps=1,
        save_strategy="steps",
        trust_remote_code=False,
        ddp_find_unused_parameters=False,  # there are none
        ddp_timeout=6 * 3600,  # seconds: who has played its share of the held-out games waits for the others
        disable_tqdm=True,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
    )
    overrides = _checked(config.trl.overrides, ours)
    try:
        return GRPOConfig(**ours, **overrides)
    except (TypeError, ValueError) as error:
        if not overrides:
            raise
        raise ConfigError(f"trl.overrides: TRL refuses {overrides} ({error}); correct it.") from error


# Each of them would break the count of steps, or who samples.
_NOT_OURS = ("num_iterations", "generation_batch_size", "use_vllm", "use_transformers_continuous_batching")


def _checked(overrides: Mapping[str, Any], ours: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `trl.overrides`. Raises ConfigError for a field that TRL does not have, or that slim_rl sets."""
    fields = [field.name for field in dataclasses.fields(GRPOConfig) if field.init]
    for name in overrides:
        if name not in fields:
            meant = did_you_mean(name, fields) or "; correct or remove it."
            raise ConfigError(f"trl.overrides.{name}: TRL's GRPOConfig has no such field{meant}")
        if name in ours or name in _NOT_OURS:
            key = next((key.name for key in KEYS if name in key.trl), "")
            raise ConfigError(
                f"trl.overrides.{name} is set by slim_rl; " + (f"set {key} instead." if key else "leave it out.")
            )
    return overrides
