"""Export of slime's checkpoints: Megatron's distributed format, converted by slime's own tool.

A Hugging Face folder that slime wrote (``--save-hf 'SAVE_DIR/hf/{rollout_id}'``) is copied instead. slime numbers rollouts from 0:
``iter_0000049`` has had 50 updates.
"""

import shutil
import sys
from pathlib import Path

from slim_rl.backends.checkpoints import numbered, whole_ones
from slim_rl.backends.export import convert
from slim_rl.backends.slime.job import environment, megatron_folder, slime_folder
from slim_rl.config import Config
from slim_rl.errors import ConfigError

TOOL = "tools/convert_torch_dist_to_hf.py"
# what slime writes last; a model in one file has no index
_LAST = ("model.safetensors.index.json", "model.safetensors")


def checkpoints(run: Path) -> dict[int, Path]:
    """Returns whole checkpoints by rollout: Megatron's, and those in Hugging Face's format."""
    folders = numbered(run / "hf", "")
    models = {number: path for number, path in folders.items() if any((path / name).exists() for name in _LAST)}
    return whole_ones(run, "iter_") | models


def write(run: Path, config: Config, checkpoint: Path, folder: Path) -> None:
    """Writes the model of `checkpoint` to an empty folder.

    Raises:
        SlimError: slime is not here, or its tool failed.
    """
    if (checkpoint / "config.json").exists():
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        return
    slime = slime_folder()
    if slime is None:
        raise ConfigError("slime is not found: set SLIME_DIR to its checkout, the folder that has train.py.")
    command = [sys.executable, "-P", str(slime / TOOL), "--force", "--origin-hf-dir", config.policy.model]
    command += ["--input-dir", str(checkpoint.absolute()), "--output-dir", str(folder)]
    convert(command, environment(slime, megatron_folder()))
