"""Checks of `slim-rl doctor` for slime: its hooks, its router, and a dry run of the launch script."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slim_rl.backends.checkpoints import count_parameters, locate_model, read_model_config
from slim_rl.backends.checks import (
    GIB,
    Check,
    Examination,
    check_cost,
    check_disk,
    check_gpus,
    installed_version,
    verdict,
)
from slim_rl.backends.gpus import find_gpus
from slim_rl.backends.slime.checkouts import find_checkouts, need_slime
from slim_rl.backends.slime.flags import TOKENS_PER_GPU, Flags, number, parse_flags, router_policy, settled, whole
from slim_rl.backends.slime.launch import SCRIPT
from slim_rl.config import Config
from slim_rl.errors import ConfigError


def check_hooks(config: Config) -> Iterator[Check]:
    """Checks that the functions named on slime's command line load, with every part of slime that they use."""
    if not installed_version("slime"):
        yield Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")
        return
    hooks = importlib.import_module("slim_rl.rollout").__all__
    yield Check("hooks", "pass", f"all {len(hooks)} load, with the parts of slime that they use")


def check_router(config: Config) -> Iterator[Check]:
    """Checks that the router keeps a dialogue on one engine. Its module's version shows slime's build, its wheel's does not."""
    if installed_version("sglang_router"):
        policy = router_policy()
        fix = "Take the router of slime's container (docs/how-to/slime-launch.md), or set ROUTER_POLICY: an engine caches a dialogue's prefix."
        yield verdict("router", policy or "its own policy", warn="" if policy else fix)


def check_launch(config: Config) -> Iterator[Check]:
    """Checks the launch by a dry run of its script, and GPU memory by the flags that it prints."""
    need_slime(find_checkouts())
    flags = _dry_run(config)
    shape = read_model_config(locate_model(config.policy.model, download=False))
    parameters = count_parameters(shape)
    trainers = number(flags, "--actor-num-nodes", "--actor-num-gpus-per-node")
    split = number(flags, "--tensor-model-parallel-size")
    offload = "--optimizer-cpu-offload" in flags
    memory = training_bytes(parameters, split, trainers, int(shape["vocab_size"]), offload)
    gpus = find_gpus()
    full = bool(gpus) and memory > 0.95 * gpus[0].total
    fix = "Take more GPUs, raise TP, lower --max-tokens-per-gpu, or move Adam's states to the host with --optimizer-cpu-offload."
    finding = f"{Path(config.policy.model).name}, {parameters / 1e9:.1f}B parameters: about {memory / GIB:.0f} GiB on each of {trainers} GPUs"
    yield verdict("model", f"{finding} (TP={split})", warn=fix if full else "")


def _dry_run(config: Config) -> Flags:
    """Returns the flags that the script would give slime. Raises ConfigError with the script's message if it refuses the config."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        config.from_anywhere().write(path)
        usual = {"MODEL": config.policy.model, "SAVE_DIR": str(config.run_dir), "PYTHON": sys.executable}
        variables = usual | os.environ | {"CONFIG": str(path)}
        done = subprocess.run(
            ["bash", str(SCRIPT), "--dry-run"], env=variables, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ConfigError(done.stderr.strip().rpartition("\n")[2].removeprefix("slim-rl: "))
    return parse_flags(shlex.split(done.stdout.replace("\\\n", " "), comments=True))


def training_bytes(parameters: int, split: int, gpus: int, vocabulary: int, offload: bool = False) -> float:
    """Returns the approximate bytes that training needs on one GPU.

    Counts bf16 weights and float32 gradients over `split` GPUs, Adam's states over all `gpus` that train, and the logits of one pack,
    the largest activation when layers are recomputed.
    """
    adam = 0.0 if offload else 12 * parameters / gpus
    logits = 3 * 4 * TOKENS_PER_GPU * vocabulary / split
    return 6 * parameters / split + adam + logits


def check_partners_cost(config: Config) -> Iterator[Check]:
    """Estimates the partner's cost with as many evaluations as slime makes."""
    yield from check_cost(config, settled(config).train.eval_every)


def check_machine(config: Config) -> Iterator[Check]:
    """Checks that the GPUs of NUM_GPUS are there; without it one is enough."""
    yield from check_gpus(config, whole("NUM_GPUS", os.environ.get("NUM_GPUS") or "1"), "NUM_GPUS")


EXAMINATIONS: dict[str, Examination] = {
    "partner's cost": check_partners_cost,
    "disk": lambda config: check_disk(config, os.environ.get("SAVE_DIR") or ""),
    "GPUs": check_machine,
    "hooks": check_hooks,
    "router": check_router,
    "model": check_launch,
}
