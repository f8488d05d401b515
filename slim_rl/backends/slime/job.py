"""slime's and Megatron-LM's folders, and the environment of the Ray job that imports them.

python -P -m slim_rl.backends.slime.job           prints slime's folder, empty if it is not found
python -P -m slim_rl.backends.slime.job CONFIG    prints the job's runtime environment for a run's config.yaml (JSON)
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.config import load_config

PACKAGES = Path(__file__).resolve().parents[3]  # folder that contains the package slim_rl
# Variables of this machine that every process of the job needs: keys, caches, proxies and network settings.
_PASSED_ON = ("OPENAI_", "WANDB_", "HF_", "NCCL_", "GLOO_", "NVSHMEM_", "SGLANG_", "TENSORBOARD_DIR")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_MEGATRON = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # its overlap of tensor-parallel communication needs one queue


def slime_folder() -> Path | None:
    """Returns the folder that has slime's train.py: SLIME_DIR, or where the package slime lies; None if it is missing."""
    return _folder("SLIME_DIR", "slime")


def megatron_folder() -> Path | None:
    """Returns Megatron-LM's folder: MEGATRON_DIR, its package's, or its place next to slime in slime's container."""
    slime = slime_folder()
    beside = slime.parent / "Megatron-LM" if slime is not None else None
    return _folder("MEGATRON_DIR", "megatron") or (beside if beside is not None and beside.is_dir() else None)


def environment(*folders: Path | None) -> dict[str, str]:
    """Returns the environment of a process that imports packages from these folders, and slim_rl."""
    path = [*map(str, filter(None, folders)), str(PACKAGES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, dict.fromkeys(path)))} | _MEGATRON


def runtime_environment(path: Path) -> dict[str, Any]:
    """Returns the runtime environment of a Ray job that trains with this run's config.yaml. It holds the partner's key."""
    config = load_config(path)
    # slime has a package named examples too
    ours = [bundled.ROOT] if config.environment.startswith("examples.") else []
    keys = {member.partner.openai.api_key_env for member in config.members.values()}
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in keys or name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    search_path = environment(*ours, slime_folder(), megatron_folder())["PYTHONPATH"]
    variables |= {"PYTHONPATH": search_path, "PYTHONUNBUFFERED": "1"} | _MEGATRON
    variables.setdefault("TENSORBOARD_DIR", str(path.parent / "tensorboard"))
    return {"env_vars": variables}


def _folder(variable: str, package: str) -> Path | None:
    """Returns the folder that a variable names, or that contains an installed package."""
    if named := os.environ.get(variable):
        return Path(named).expanduser().absolute()
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent.absolute()


if __name__ == "__main__":
    if sys.argv[1:]:
        json.dump(runtime_environment(Path(sys.argv[1])), sys.stdout)
    else:
        print(slime_folder() or "")
