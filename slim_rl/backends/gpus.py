"""The GPUs of this machine, asked of nvidia-smi."""

from __future__ import annotations

import os
import subprocess
from itertools import takewhile
from typing import NamedTuple


class Gpu(NamedTuple):
    """GPU with its memory in bytes."""

    name: str
    total: float
    used: float


def find_gpus() -> list[Gpu]:
    """Lists the GPUs that CUDA_VISIBLE_DEVICES leaves, if any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return []
    words = ["--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    listed = nvidia_smi(*words, *([f"--id={visible}"] if visible else []))
    lines = [line.rsplit(", ", 2) for line in listed.splitlines() if line.count(", ") == 2]
    return [Gpu(name, float(total) * 2**20, float(used) * 2**20) for name, total, used in lines]


def count_gpus() -> int:
    """Counts this machine's GPUs: those that CUDA_VISIBLE_DEVICES names, or else those that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = (gpu.strip() for gpu in visible.split(","))
        return sum(
            1 for gpu in takewhile(lambda gpu: not gpu.startswith("-"), named) if gpu
        )  # -1 hides it and all after it
    return sum(line.startswith("GPU") for line in nvidia_smi("-L").splitlines())


def local_processes(number: int) -> int:
    """Returns the number of a run's processes on this machine: at most one per GPU, if it has any."""
    gpus = count_gpus()
    return min(number, gpus) if gpus else number


def has_nvlink() -> bool:
    """Returns True if nvidia-smi's topology shows an NVLink (NV4, NV18, …)."""
    return any(word[:2] == "NV" and word[2:].isdigit() for word in nvidia_smi("topo", "-m").split())


def nvidia_smi(*words: str) -> str:
    """Returns what nvidia-smi prints; empty if it is missing, fails or hangs."""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
