"""Export of slime's checkpoints: Megatron's distributed format, converted by slime's own tool.

A Hugging Face folder that slime wrote (``--save-hf 'SAVE_DIR/hf/{rollout_id}'``) is copied instead. slime numbers rollouts from 0:
``iter_0000049`` has had 50 updates.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from slim_rl.backends.checkpoints import numbered, whole_ones
from slim_rl.backends.export import convert
from slim_rl.backends.slime.checkouts import find_checkouts, need_slime
from slim_rl.config import Config
from slim_rl.errors import ConfigError, DataError, SlimError

TOOL = "tools/convert_torch_dist_to_hf.py"


def checkpoints(run: Path) -> dict[int, Path]:
    """Whole checkpoints by rollout: Megatron's, and those in Hugging Face's format."""
    models = {number: path for number, path in numbered(run / "hf", "").items() if _has_weights(path)}
    return whole_ones(run, "iter_") | models


def _has_weights(folder: Path) -> bool:
    """Returns True if slime has written the model completely.

    slime writes the config first, then the weights, and the index last; a model in one file may have no index.
    """
    last = ("model.safetensors.index.json", "model.safetensors")
    return (folder / "config.json").exists() and any((folder / name).exists() for name in last)


def write(run: Path, config: Config, checkpoint: Path, folder: Path) -> None:
    """Writes the model of `checkpoint` to an empty folder.

    Raises:
        SlimError: slime, Megatron or the model that training started from is not here, or the tool failed.
    """
    if (checkpoint / "config.json").exists():
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        return
    if not (checkpoint / "common.pt").is_file():
        raise DataError(f"{checkpoint} is not a checkpoint in Megatron's torch_dist format: it has no common.pt.")
    base = Path(config.policy.model)
    if not base.is_dir():
        raise ConfigError(
            f"The model that training started from, {base}, is not here; its tokenizer and config go into the export. Put it there."
        )
    checkouts = find_checkouts()
    tool = need_slime(checkouts) / TOOL
    if not tool.is_file():
        raise SlimError(f"slime in {checkouts.slime} has no {TOOL}; use v0.3.1 or later.")
    python = os.environ.get("PYTHON") or sys.executable
    command = [python, "-P", str(tool), "--input-dir", str(checkpoint.absolute()), "--output-dir", str(folder)]
    convert([*command, "--force", "--origin-hf-dir", str(base.absolute())], checkouts.environment())
