"""Checkpoints of TRL's trainer: whole ones have the state of the trainer, which it writes last."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from slim_rl.backends.checkpoints import numbered
from slim_rl.config import Config
from slim_rl.errors import DataError
from slim_rl.files import read_object
from slim_rl.policies.lora import adapted_layers, check_adapters
from slim_rl.policies.transformers import load_model


def whole_checkpoints(folder: Path) -> dict[int, Path]:
    """Returns the complete checkpoints by their step."""
    whole = {}
    for step, path in numbered(folder, "checkpoint-").items():
        with suppress(DataError):
            read_object(path / "trainer_state.json")
            whole[step] = path
    return whole


def last_whole_checkpoint(folder: Path, remove_torn: bool = True) -> Path | None:
    """Returns the newest complete checkpoint below `folder`, and removes incomplete ones, but nothing that a run does not write."""
    whole = whole_checkpoints(folder)
    for step, checkpoint in numbered(folder, "checkpoint-").items():
        if remove_torn and step not in whole:
            shutil.rmtree(checkpoint)
    return whole[max(whole)] if whole else None


def restore(start: Any, config: Config, checkpoint: Path) -> Any:
    """Loads the model of a checkpoint: all weights, or the adapters over the initial model."""
    if (checkpoint / "adapter_config.json").exists():
        from peft import PeftConfig, PeftModel

        check_adapters(start, adapted_layers(PeftConfig.from_pretrained(checkpoint)))
        return PeftModel.from_pretrained(start, checkpoint)
    return load_model(config.policy.changed(model=str(checkpoint)))[0]
