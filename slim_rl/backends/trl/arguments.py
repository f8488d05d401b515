"""TRL's arguments from a config."""

from pathlib import Path

import torch
from trl import GRPOConfig

from slim_rl.config import Config, read_yaml
from slim_rl.config.trainers import values
from slim_rl.errors import ConfigError, SlimError
from slim_rl.ranks import run_size


def grpo_arguments(config: Config, run_dir: Path) -> GRPOConfig:
    """Returns TRL's arguments for `config`; a field that slim_rl sets cannot be in `trl.overrides` too, Python refuses it.

    Raises:
        SlimError: the batch does not divide, or the environment does not say among how many processes.
        ConfigError: TRL refuses `trl.overrides`.
    """
    train = config.train
    processes = run_size()
    micro = min(train.micro_batch, max(1, train.dialogues // processes))
    if train.dialogues % (micro * processes):
        raise SlimError(
            f"train.games_per_step × train.group_size = {train.dialogues} dialogues a step do not divide into micro-batches of "
            f"{micro} on {processes} process(es); choose a train.micro_batch that divides them."
        )
    accumulation = train.dialogues // (micro * processes)
    on_gpu = torch.cuda.is_available()
    # Read only by loss types that divide by it; the dialogues themselves obey `limits`.
    longest = config.limits.dialogue_tokens or config.limits.context_tokens or 4096
    settled = config.changed(train={"micro_batch": micro}, limits={"dialogue_tokens": longest})
    try:
        return GRPOConfig(
            **values(settled, "trl"),
            **config.trl.overrides,
            **read_yaml(Path(__file__).with_name("fixed.yaml")),
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            output_dir=str(run_dir / "checkpoints"),
            run_name=config.name,
            use_cpu=not on_gpu,
            bf16=on_gpu and config.policy.dtype == "bfloat16",
            dataloader_pin_memory=on_gpu,
        )
    except (TypeError, ValueError) as error:
        if not config.trl.overrides:
            raise
        raise ConfigError(f"trl.overrides: TRL refuses {config.trl.overrides} ({error}); correct it.") from error
