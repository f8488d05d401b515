"""What a run on slime needs: slime itself and what it rests on, hooks with the signatures it calls, a model it knows, memory."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from slim_rl.backends.checks import Check, Examination, Target, sentence
from slim_rl.backends.machine import GIB, find_gpus, model_shape
from slim_rl.backends.slime.model import find_architecture, needs_offload, size_up, training_bytes
from slim_rl.errors import SlimError

CONTAINER = "Use slime's container, which holds versions that fit each other (docs/cluster.md), or set SLIME_DIR."
TRIED = {"slime": "0.3.1", "sglang": "0.5.15", "ray": "2."}


@dataclass(frozen=True)
class Hook:
    """A function that slime calls: its dotted path, and with what."""

    path: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    coroutine: bool = False


HOOKS = [
    Hook("slim_rl.rollout.generate", ("args", "sample", "sampling_params"), ("evaluation",), coroutine=True),
    Hook("slim_rl.rollout.keep_usable_groups", ("args", "samples")),
    Hook("slim_rl.rollout.normalize_rewards", ("args", "samples")),
    Hook("slim_rl.rollout.log_rollout", ("rollout_id", "args", "samples", "extra_metrics", "rollout_time")),
    Hook("slim_rl.rollout.log_eval_rollout", ("rollout_id", "args", "data", "extra_metrics")),
]
# What the hook calls of slime.
COMPAT = "slim_rl.backends.slime.compat"
NEEDED = [
    ("slime.utils.types", "Sample"),
    ("slime.utils.http_utils", "post"),
    ("slime.rollout.sglang_rollout", "GenerateState"),
    ("slime.rollout.filter_hub.base_types", "DynamicFilterOutput"),
]


def check_versions(patient: Target) -> Sequence[Check]:
    """slime, SGLang and Ray in versions the hook was tried with; Megatron and the router slime patches."""
    for checkout in ("SLIME_DIR", "MEGATRON_DIR"):  # as the launch script finds them
        place = os.environ.get(checkout)
        if place and place not in sys.path:
            sys.path.append(place)
    checks = []
    for name, tried in TRIED.items():
        if not _installed(name):
            checks.append(Check(name, "fail", "not installed", CONTAINER))
            continue
        version = _version(name)
        status: Any = "pass" if version.startswith(tried) else "warn"
        found = version if status == "pass" else f"{version}; tried with {tried}"
        mend = (
            "" if status == "pass" else "Watch the first rollout: every hook below was checked, its results were not."
        )
        checks.append(Check(name, status, found, mend))
    place = _place("megatron")
    if place:
        checks.append(Check("Megatron", "pass", place))
    else:
        checks.append(Check("Megatron", "fail", "not importable", "Set MEGATRON_DIR to its checkout."))
    router = _version("sglang_router", "sglang-router")
    if "slime" in router:
        checks.append(Check("router", "pass", router))
    else:
        mend = "With several engines take slime's build: it keeps a dialogue on one engine, where its prefix is cached."
        checks.append(Check("router", "warn", f"{router or 'not installed'}; knows no consistent hashing", mend))
    return checks


def check_slime_parts(patient: Target) -> Check:
    """What the hook calls of slime is where it is looked for."""
    name = "slime's interface"
    try:
        for module, path in NEEDED:
            thing: Any = importlib.import_module(module)
            for part in path.split("."):
                thing = getattr(thing, part)
        path, module = "", COMPAT
        importlib.import_module(COMPAT)  # finds what has moved between versions, and refuses a slime that is too old
    except SlimError as error:
        return Check(name, "fail", str(error), CONTAINER)
    except Exception as error:
        mend = "Take THUDM's slime; the package of that name on the index is another thing."
        return Check(name, "fail", f"{module}.{path}".rstrip(".") + f": {sentence(error)}", mend)
    return Check(name, "pass", f"{len(NEEDED)} parts found")


def check_hooks(patient: Target) -> Sequence[Check]:
    """Every hook path of the launch loads as slime loads it and takes what slime gives it."""
    if not _installed("slime"):
        return [Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")]
    checks = []
    for hook in HOOKS:
        try:
            complaint = hook_complaint(load_hook(hook.path), hook)
        except Exception as error:
            complaint = sentence(error)
        mend = "Install slim_rl whole and in one version: pip install -e ." if complaint else ""
        checks.append(
            Check(hook.path.rpartition(".")[2], "fail" if complaint else "pass", complaint or hook.path, mend)
        )
    return checks


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


def load_hook(path: str) -> Callable[..., Any]:
    """The function at a dotted path, found as slime finds it."""
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def check_model(patient: Target) -> Check:
    """slime knows the architecture, and it fits the GPUs."""
    config = patient.config
    shape = model_shape(config.policy.model)
    place = os.environ.get("SLIME_DIR") or _place("slime")
    if not place:
        return Check("model", "fail", "slime's model scripts are not found", "Set SLIME_DIR to slime's checkout.")
    architecture = find_architecture(shape, place)
    gpus = find_gpus()
    count = patient.gpus or len(gpus) or 8
    size = size_up(shape, count)
    split = size.tensor_parallel
    vocabulary = int(shape["vocab_size"])
    need = training_bytes(
        size.parameters, split, count, vocabulary, needs_offload(size.parameters, split, count, vocabulary)
    )
    found = f"{architecture.script}, {size.parameters / 1e9:.1f}B: about {need / GIB:.0f} GiB a GPU to train on {count} (TP={split})"
    if gpus and need > 0.95 * gpus[0].total:
        mend = (
            "Take more GPUs, raise TP, or lower --max-tokens-per-gpu; --optimizer-cpu-offload moves Adam to the host."
        )
        return Check("model", "warn", f"{found}, of {gpus[0].total / GIB:.0f} GiB", mend)
    return Check("model", "pass", found)


def _version(module: str, distribution: str | None = None) -> str:
    try:
        return metadata.version(distribution or module)
    except metadata.PackageNotFoundError:
        pass
    setup = Path(_place(module) or ".") / "setup.py"  # a checkout on PYTHONPATH
    if setup.is_file():
        for line in setup.read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("version="):
                return line.split('"')[1] if '"' in line else "unknown"
    return "unknown" if _installed(module) else ""


def _installed(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _place(module: str) -> str | None:
    """The folder that holds the package, if it is there."""
    spec = importlib.util.find_spec(module) if _installed(module) else None
    if spec is None or not spec.submodule_search_locations:
        return None
    return str(Path(next(iter(spec.submodule_search_locations))).parent)


EXAMINATIONS: list[tuple[str, Examination]] = [
    ("slime", check_versions),
    ("slime's interface", check_slime_parts),
    ("hooks", check_hooks),
    ("model", check_model),
]
