"""The GPUs of this machine."""

from __future__ import annotations

import os
import subprocess


def count_gpus() -> int:
    """Counts this machine's GPUs: those that CUDA_VISIBLE_DEVICES names, or else those that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(bool(gpu.strip()) and not gpu.strip().startswith("-") for gpu in visible.split(","))
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU") for line in listed.splitlines())


def local_processes(number: int) -> int:
    """Returns the number of a run's processes on this machine: at most one per GPU, if it has any."""
    gpus = count_gpus()
    return min(number, gpus) if gpus else number
