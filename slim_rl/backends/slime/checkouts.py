"""slime's and Megatron-LM's checkouts, and the environment of processes that import them.

python -P -m slim_rl.backends.slime.checkouts           prints their two folders; a line is empty if nothing is found
python -P -m slim_rl.backends.slime.checkouts CONFIG    prints the runtime environment of a Ray job with this config (JSON)
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import with_packages

PACKAGES = Path(__file__).resolve().parents[3]  # folder that contains the package slim_rl
# Variables of this machine that every process of the job needs: keys, caches, proxies and network settings.
_PASSED_ON = ("OPENAI_", "WANDB_", "HF_", "NCCL_", "GLOO_", "NVSHMEM_", "SGLANG_", "TENSORBOARD_DIR")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_MEGATRON = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # its overlap of tensor-parallel communication needs one queue


@dataclass(frozen=True)
class Checkouts:
    """Folders of slime and Megatron-LM; None if not found."""

    slime: Path | None
    megatron: Path | None

    def environment(self, ours_first: bool = False) -> dict[str, str]:
        """Returns the environment of a process that imports slime or Megatron.

        Args:
            ours_first: search our root package `examples` before slime's of the same name.
        """
        theirs = [folder for folder in (self.slime, self.megatron) if folder is not None]
        return with_packages([*([bundled.ROOT] if ours_first else []), *theirs, PACKAGES]) | _MEGATRON


def find_checkouts(environment: Mapping[str, str] | None = None) -> Checkouts:
    """Finds slime by SLIME_DIR or its package; Megatron-LM by MEGATRON_DIR, next to slime, or by its package.

    Raises:
        ConfigError: a variable names another folder.
    """
    environment = os.environ if environment is None else environment
    slime, megatron = (_named(environment, name) for name in ("SLIME_DIR", "MEGATRON_DIR"))
    slime = slime or _package("slime")
    if slime is not None and not (slime / "train.py").is_file():
        if environment.get("SLIME_DIR"):
            raise ConfigError(
                f"SLIME_DIR={slime}: no train.py. Set SLIME_DIR to slime's checkout, the folder that has it."
            )
        slime = None
    if megatron is not None and not (megatron / "megatron").is_dir():
        raise ConfigError(f"MEGATRON_DIR={megatron}: no package megatron. Set MEGATRON_DIR to Megatron-LM's checkout.")
    if megatron is None and slime is not None:
        beside = slime.parent / "Megatron-LM"  # its place in slime's container
        megatron = beside if beside.is_dir() else _package("megatron")
    return Checkouts(slime, megatron)


def need_slime(checkouts: Checkouts) -> Path:
    """Returns slime's folder. Raises ConfigError if slime was not found."""
    if checkouts.slime is None:
        raise ConfigError("slime is not found: set SLIME_DIR to its checkout, the folder that has train.py.")
    return checkouts.slime


def _named(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name)
    return Path(value).expanduser().absolute() if value else None


def _package(name: str) -> Path | None:
    """Returns the folder that contains a package, or None."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent.absolute()


def runtime_environment(config: Path) -> dict[str, Any]:
    """Returns the runtime environment of a Ray job that trains with this run's config.yaml. It holds the partner's key."""
    from slim_rl.backends.gpus import has_nvlink
    from slim_rl.config import load_config

    settings = load_config(config)
    key = settings.partner.openai.api_key_env
    variables = {
        name: value
        for name, value in os.environ.items()
        if name == key or name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    environment = find_checkouts().environment(ours_first=settings.environment.startswith("examples."))
    variables |= {"PYTHONPATH": environment["PYTHONPATH"], "PYTHONUNBUFFERED": "1"} | _MEGATRON
    variables.setdefault("NCCL_NVLS_ENABLE", str(int(has_nvlink())))
    variables.setdefault("TENSORBOARD_DIR", str(config.parent / "tensorboard"))
    return {"env_vars": variables}


def main(arguments: list[str]) -> int:
    """Prints what the module's docstring says. Returns 1, with a message, if a variable names a wrong folder."""
    try:
        if arguments:
            json.dump(runtime_environment(Path(arguments[0])), sys.stdout)
        else:
            checkouts = find_checkouts()
            print(checkouts.slime or "", checkouts.megatron or "", sep="\n")
        return 0
    except SlimError as error:
        print(f"slim-rl: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
