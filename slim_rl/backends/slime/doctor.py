"""What a run on slime needs besides its packages: slime's parts where the hook looks for them, hooks with the signatures that slime
calls, a model that slime knows, and GPU memory for it.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from slim_rl.backends.checks import Check, Examination, installed_version, verdict
from slim_rl.backends.machine import GIB, find_gpus, model_shape, wanted_gpus
from slim_rl.backends.slime.model import find_architecture, needs_offload, size_up, training_bytes
from slim_rl.backends.slime.places import package_dir
from slim_rl.config import Config


class Hook(NamedTuple):
    """A function of `slim_rl.rollout` that slime calls, and with what."""

    name: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    coroutine: bool = False


HOOKS = [
    Hook("generate", ("args", "sample", "sampling_params"), ("evaluation",), coroutine=True),
    Hook("keep_usable_groups", ("args", "samples")),
    Hook("normalize_rewards", ("args", "samples")),
    Hook("log_rollout", ("rollout_id", "args", "samples", "extra_metrics", "rollout_time")),
    Hook("log_eval_rollout", ("rollout_id", "args", "data", "extra_metrics")),
]
# What the hook calls of slime; the module after these finds what has moved between versions, and refuses a slime that is too old.
NEEDED = [
    ("slime.utils.types", "Sample"),
    ("slime.utils.http_utils", "post"),
    ("slime.rollout.sglang_rollout", "GenerateState"),
    ("slime.rollout.filter_hub.base_types", "DynamicFilterOutput"),
    ("slim_rl.backends.slime.compat", "log_metrics"),
]


def check_interface(config: Config) -> Check:
    """What the hook calls of slime is where it is looked for."""
    for module, name in NEEDED:
        getattr(importlib.import_module(module), name)
    return Check("slime's interface", "pass", f"{len(NEEDED)} parts found")


def check_hooks(config: Config) -> Check:
    """Every hook of the launch loads as slime loads it and takes what slime gives it."""
    if not installed_version("slime"):
        return Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")
    rollout = importlib.import_module("slim_rl.rollout")
    complaints = [f"{hook.name}: {why}" for hook in HOOKS if (why := hook_complaint(getattr(rollout, hook.name), hook))]
    fix = "Install slim_rl whole and in one version: pip install -e ." if complaints else ""
    return verdict("hooks", "; ".join(complaints) or f"all {len(HOOKS)} load and take what slime gives them", fail=fix)


def hook_complaint(function: Callable[..., Any], hook: Hook) -> str:
    """What is wrong with a hook, or nothing: slime must be able to call it as it does."""
    signature = inspect.signature(function)
    wanted = f"{'async ' if hook.coroutine else ''}({', '.join((*hook.positional, *hook.keywords))})"
    try:
        signature.bind(*hook.positional, **dict.fromkeys(hook.keywords))
    except TypeError as error:
        return f"slime calls it as {wanted}: {error}"
    if inspect.iscoroutinefunction(function) != hook.coroutine:
        return f"slime calls it as {wanted}, but it is {'a plain' if hook.coroutine else 'an async'} function"
    if not set(signature.parameters).issuperset(hook.keywords):  # slime looks for the name before it passes it
        return f"slime looks for parameters named {', '.join(hook.keywords)}"
    return ""


def check_model(config: Config) -> Check:
    """slime knows the architecture, and it fits the GPUs."""
    shape, gpus = model_shape(config.policy.model), find_gpus()
    script = find_architecture(shape, os.environ.get("SLIME_DIR") or package_dir("slime") or "").script
    count = wanted_gpus(config) or len(gpus) or 8
    size = size_up(shape, count)
    sizes = (size.parameters, size.tensor_parallel, count, int(shape["vocab_size"]))
    need = training_bytes(*sizes, needs_offload(*sizes))
    found = f"{script}, {size.parameters / 1e9:.1f}B: about {need / GIB:.0f} GiB a GPU to train on {count} (TP={size.tensor_parallel})"
    full = bool(gpus) and need > 0.95 * gpus[0].total
    return verdict("model", found, warn="Take more GPUs, raise TP, or lower --max-tokens-per-gpu." if full else "")


EXAMINATIONS: list[tuple[str, Examination]]
EXAMINATIONS = [("slime's interface", check_interface), ("hooks", check_hooks), ("model", check_model)]
