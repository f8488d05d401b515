"""Finds slime's and Megatron's checkouts and the interpreter that can import them; converts a checkpoint and lets their parsers check
the flags before a run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slim_rl import bundled
from slim_rl.backends import say
from slim_rl.backends.checkpoints import LAST_WHOLE
from slim_rl.backends.slime.arguments import Run, words
from slim_rl.backends.slime.settings import Settings
from slim_rl.config import Config
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import last_lines, running, with_packages

PACKAGES = Path(__file__).resolve().parents[3]  # the folder that slim_rl lies in
CONVERT_ON_ONE_GPU = 9e9  # parameters above which converting the checkpoint is spread over a node's GPUs


@dataclass(frozen=True)
class Places:
    """Checkouts and the interpreter. `slime` is None where it is not installed, `megatron` where it is not found."""

    python: str
    slime: Path | None
    megatron: Path | None

    def path(self, config: Config) -> list[Path]:
        """Where the job's Python looks for packages. slime has a root package named `examples`, as slim_rl has: whose
        comes first is decided by whose the config's environment is.
        """
        theirs = [place for place in (self.slime, self.megatron) if place is not None]
        ours = config.environment.startswith("examples.")
        return list(dict.fromkeys((bundled.ROOT, *theirs, PACKAGES))) if ours else [*theirs, PACKAGES]

    def environment(self, config: Config) -> dict[str, str]:
        """That of a process which needs slime or Megatron."""
        return with_packages(self.path(config)) | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def find_places(settings: Settings, dry_run: bool) -> Places:
    """Raises ConfigError if slime is not where the settings say, or not installed; a dry run does not need it."""
    slime = Path(settings.slime_dir).expanduser() if settings.slime_dir else package_dir("slime")
    if slime is None or not (slime / "train.py").is_file():
        if settings.slime_dir or not dry_run:
            where = f" in {slime}" if slime else ""
            raise ConfigError(
                f"slime is not found{where}: set SLIME_DIR to its checkout, the folder that holds train.py."
            )
        slime = None
    megatron: Path | None = None
    if settings.megatron_dir:
        megatron = Path(settings.megatron_dir).expanduser().absolute()
    elif slime is not None:
        beside = slime.absolute().parent / "Megatron-LM"  # so it lies in slime's container
        megatron = beside if beside.is_dir() else package_dir("megatron")
    python = os.environ.get("PYTHON") or sys.executable
    if "/" in python:
        python = str(Path(python).absolute())
    return Places(python, slime and slime.absolute(), megatron)


def package_dir(name: str) -> Path | None:
    """The folder that holds a package, if it is there."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent


def router_policy() -> str:
    """One dialogue, one engine: only there is its prefix cached. slime's image has the router that can do it."""
    try:
        return "consistent_hashing" if "slime" in importlib.import_module("sglang_router").__version__ else ""
    except (ImportError, AttributeError):
        return ""


def convert(run: Run, places: Places, gpus: int) -> None:
    """Converts the checkpoint to Megatron's format, whole or not at all, unless that is done."""
    model, target = Path(run.config.policy.model), run.start
    if (target / LAST_WHOLE).is_file():
        return
    if target.exists():
        raise ConfigError(
            f"{target} exists but holds no complete checkpoint; remove it, or set TORCH_DIST to another path."
        )
    if not gpus:
        raise ConfigError(f"{target} is missing and converting takes a GPU: start this on a GPU node once.")
    say(f"converting {model} to {target}")
    unfinished = target.with_name(f"{target.name}.unfinished.{os.getpid()}")
    processes = min(run.layout.actor_gpus, gpus) if run.layout.parameters > CONVERT_ON_ONE_GPU else 1
    command = [places.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [f"{places.slime}/tools/convert_hf_to_torch_dist.py", *words(run.model_flags or {})]
    command += ["--hf-checkpoint", str(model), "--save", str(unfinished)]
    try:
        with running(command, env=places.environment(run.config)) as process:
            if process.wait():
                raise SlimError("the conversion failed; its own message is above. Nothing was left behind.")
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_flags(run: Run, places: Places, flags: Sequence[str]) -> None:
    """Runs slime's own parsers over the flags. Raises SlimError with the end of their answer if they refuse them."""
    say("checking the flags with slime's own parsers")
    log = run.folder / "flags.log"
    command = [places.python, "-m", "slim_rl.backends.slime.flags", *flags]
    with log.open("wb") as output:
        code = subprocess.run(
            command, env=places.environment(run.config), stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code:
        print(last_lines(log), file=sys.stderr)
        raise SlimError(f"slime refuses this command line (all of its answer: {log}).")
