"""Export of verl's checkpoints: the actor's shards, merged by verl's own `verl.model_merger`; LoRA adapters, which the merger writes
separately, are merged into the model.
"""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from slim_rl.backends.checkpoints import whole_ones
from slim_rl.backends.export import convert
from slim_rl.config import Config
from slim_rl.errors import ConfigError
from slim_rl.files import read_object, write_atomically
from slim_rl.processes import python_module


def checkpoints(run: Path) -> dict[int, Path]:
    """Returns the actors of complete checkpoints by step."""
    steps = whole_ones(run / "checkpoints", "global_step_")
    return {step: path / "actor" for step, path in steps.items() if (path / "actor").is_dir()}


def write(run: Path, config: Config, checkpoint: Path, folder: Path) -> None:
    """Writes the model of `checkpoint` to an empty folder.

    Raises:
        SlimError: verl is not installed, or the merger failed.
    """
    if find_spec("verl") is None:
        raise ConfigError(
            "verl is not installed here, and its own merger reads its checkpoints: pip install 'slim-rl[verl]'."
        )
    kind = "fsdp" if (checkpoint / "fsdp_config.json").exists() else "megatron"
    merger = [*python_module("verl.model_merger"), "merge", "--backend", kind]
    convert([*merger, "--local_dir", str(checkpoint), "--target_dir", str(folder)])
    adapter = folder / "lora_adapter"
    if not adapter.is_dir():
        return
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    described = read_object(adapter / "adapter_config.json")
    if not described.get("lora_alpha") and config.train.lora is not None:  # verl's merger may not know it
        write_atomically(
            adapter / "adapter_config.json", json.dumps(described | {"lora_alpha": config.train.lora.alpha})
        )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(folder)
    shutil.rmtree(adapter)
