"""What a run on slime needs besides its packages: the hook with all that it uses of slime, and whatever its launch checks."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

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
from slim_rl.backends.slime.arguments import router_policy
from slim_rl.backends.slime.cluster import check_save_dir, find_checkouts
from slim_rl.backends.slime.launch import plan
from slim_rl.backends.slime.settings import read_settings
from slim_rl.config import Config


def check_hooks(config: Config) -> Iterator[Check]:
    """The functions that slime's command line names load, and with them every part of slime that they use."""
    if not installed_version("slime"):
        yield Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")
        return
    hooks = importlib.import_module("slim_rl.rollout").__all__
    yield Check("hooks", "pass", f"all {len(hooks)} load, with the parts of slime that they use")


def check_router(config: Config) -> Iterator[Check]:
    """The router keeps a dialogue on one engine, as the launch sees it: the package's own version says whose build it is, and not that of
    its wheel.
    """
    if installed_version("sglang_router"):
        policy = router_policy()
        fix = "Take the router of slime's container (docs/how-to/slime-launch.md), or choose by ROUTER_POLICY: a dialogue's prefix is cached on one engine."
        yield verdict("router", policy or "its own policy", warn="" if policy else fix)


def check_launch(config: Config) -> Iterator[Check]:
    """The launch's own checks (the model is one that slime knows, GPUs and batch divide, the disk stays), and GPU memory."""
    settings, _, own = read_settings((), os.environ)
    gpus = find_gpus()
    checkouts = find_checkouts(settings, dry_run=False)
    job, _, about = plan(settings, config, checkouts, own, len(gpus), dry_run=True)
    layout = job.layout
    need = f"about {layout.memory / GIB:.0f} GiB on each of {layout.trainers} GPUs (TP={layout.tensor_parallel})"
    found = f"{about}, {layout.parameters / 1e9:.1f}B: {need}"
    full = bool(gpus) and layout.memory > 0.95 * gpus[0].total
    yield verdict("model", found, warn="Take more GPUs, raise TP, or lower --max-tokens-per-gpu." if full else "")
    yield verdict("run's folder", str(job.folder), warn=check_save_dir(job.folder, settings.num_nodes, dry_run=False))


def check_partners_cost(config: Config) -> Iterator[Check]:
    """With as many evaluations as the launch would make."""
    settings, _, _ = read_settings((), os.environ)
    yield from check_cost(config, settings.evaluates_every(config.train.eval_every))


def check_machine(config: Config) -> Iterator[Check]:
    """The GPUs of NUM_GPUS are there; without it one is enough."""
    settings, _, _ = read_settings((), os.environ)
    yield from check_gpus(config, settings.num_gpus or 1, "NUM_GPUS")


EXAMINATIONS: dict[str, Examination] = {
    "partner's cost": check_partners_cost,
    "disk": lambda config: check_disk(config, read_settings((), os.environ)[0].save_dir),
    "GPUs": check_machine,
    "hooks": check_hooks,
    "router": check_router,
    "model": check_launch,
}
