"""Export of verl's checkpoints: the actor's shards, merged by verl's own `verl.model_merger`.

LoRA adapters, which the merger writes separately, are merged into the model.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from slim_rl.backends.checkpoints import whole_ones
from slim_rl.backends.export import convert
from slim_rl.config import Config
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import read_object, write_atomically
from slim_rl.processes import python_module


def checkpoints(run: Path) -> dict[int, Path]:
    """Returns the actors of complete checkpoints by step."""
    steps = whole_ones(run / "checkpoints", "global_step_")
    return {step: path / "actor" for step, path in steps.items() if (path / "actor").is_dir()}


def write(run: Path, config: Config, checkpoint: Path, folder: Path) -> None:
    """Writes the model of `checkpoint` to an empty folder.

    Raises:
        SlimError: verl is not installed, a shard is missing, or the merger failed.
    """
    if find_spec("verl") is None:
        raise ConfigError(
            "verl is not installed here, and its own merger reads its checkpoints: pip install 'slim-rl[verl]'."
        )
    fsdp = (checkpoint / "fsdp_config.json").exists()
    if fsdp:
        _check_shards(checkpoint)
    command = [*python_module("verl.model_merger"), "merge", "--backend", "fsdp" if fsdp else "megatron"]
    convert([*command, "--local_dir", str(checkpoint), "--target_dir", str(folder)])
    adapter = folder / "lora_adapter"
    if adapter.is_dir():
        _merge_adapter(config, folder, adapter)


def _check_shards(checkpoint: Path) -> None:
    size = read_object(checkpoint / "fsdp_config.json").get("world_size")
    if not isinstance(size, int):
        raise DataError(f"{checkpoint}/fsdp_config.json names no world_size; it is not a checkpoint of verl's.")
    names = [f"model_world_size_{size}_rank_{rank}.pt" for rank in range(size)]
    missing = [name for name in names if not (checkpoint / name).is_file()]
    if missing:
        raise DataError(
            f"{checkpoint} lacks {len(missing)} of its {size} shards ({missing[0]}, ...): each node has written its own; "
            "bring them into one folder."
        )


def _merge_adapter(config: Config, folder: Path, adapter: Path) -> None:
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM

    from slim_rl.policies.lora import adapted_layers, check_adapters

    described = read_object(adapter / "adapter_config.json")
    if not described.get("lora_alpha") and config.train.lora is not None:  # verl's merger may not know it
        described |= {"lora_alpha": config.train.lora.alpha}
        write_atomically(adapter / "adapter_config.json", json.dumps(described))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    check_adapters(model, adapted_layers(PeftConfig.from_pretrained(adapter)))
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    merged.save_pretrained(folder)
    shutil.rmtree(adapter)
