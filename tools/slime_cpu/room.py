"""The memory and disk that training takes, asked for before anything starts.

python -m slime_cpu.room MODEL FOLDER      for a model, in the folder of its run
"""

import sys
from math import prod
from pathlib import Path

import psutil
from safetensors import safe_open

from slim_rl.errors import SlimError, as_sentence

# Of memory and of disk alike, in bytes. 0.5B weights take 17 GiB of memory, and two checkpoints of 7 GB with three models of 1 GB of disk.
_PER_WEIGHT = 40
_PROCESSES = 2 << 30  # bytes of memory for SGLang, Ray and Megatron, whatever the model


def check(model: Path, folder: Path) -> None:
    """Raises SlimError if there is too little free memory, or disk in the folder of a run (what lies in it counts as free)."""
    weights = count_weights(model)
    memory, disk = _PER_WEIGHT * weights + _PROCESSES, _PER_WEIGHT * weights
    free = psutil.virtual_memory().available
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    left = psutil.disk_usage(str(there)).free + sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if free < memory or left < disk:
        raise SlimError(
            f"Training {weights / 1e6:,.0f} million weights takes {memory / 2**30:.1f} GiB of memory and {disk / 1e9:.1f} GB of disk, but "
            f"{free / 2**30:.1f} GiB and {left / 1e9:.1f} GB are free; end other programs, remove files, or take a smaller model."
        )


def count_weights(model: Path) -> int:
    """Returns the number of weights in a model's safetensors files."""
    total = 0
    for file in model.glob("*.safetensors"):
        with safe_open(file, "numpy") as tensors:
            total += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118  (no mapping)
    return total


if __name__ == "__main__":
    try:
        check(*map(Path, sys.argv[1:]))
    except SlimError as error:
        sys.exit(f"slim-rl: {as_sentence(error)}")
