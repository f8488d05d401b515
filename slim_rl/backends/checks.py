"""A check looks at one thing and answers with one line of the table, or several. What goes wrong inside one is a failed line of its
own, so that the others are run. The packages of all backends, with the versions that were tried, are the table `PACKAGES`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata, util
from typing import Literal

from slim_rl.config import Config
from slim_rl.errors import SlimError

# backend -> package -> versions tried; any version of a "*" will do, and it is named only where it is missing
PACKAGES = {
    "trl": {"torch": "2.*", "transformers": "5.*", "trl": "1.16.0"},
    "slime": {
        "torch": "2.*", "transformers": "*", "slime": "0.3.1*", "sglang": "0.5.15*", "ray": "2.*", "megatron": "*",
        "sglang_router": "*slime*",  # slime's build keeps a dialogue on one engine, where its prefix is cached
    },
    "verl": dict.fromkeys(("ray", "transfer_queue", "cachetools", "fastapi", "uvicorn"), "*")
    | {"torch": "2.*", "transformers": "5.*", "verl": "0.9.1"},
}  # fmt: skip
# how to install a backend's packages, and some by themselves
INSTALL = {
    "trl": "pip install -e '.[local]'",
    "slime": "Use slime's container (docs/cluster.md), or set SLIME_DIR and MEGATRON_DIR; the index's slime is another thing.",
    "verl": "pip install -e '.[verl]'; its engine by itself, vllm or sglang, as verl.engine says.",
    "wandb": "pip install wandb, or leave it out of train.report_to.",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table: "fail" means that the run would not start or would be wasted, "warn" that it may disappoint."""

    name: str
    status: Literal["pass", "warn", "fail"]
    found: str
    fix: str = ""


Examination = Callable[[Config], Check | Iterable[Check]]


def verdict(name: str, found: str, *, fail: str = "", warn: str = "") -> Check:
    """A check by how to fix what is wrong, if anything is."""
    return Check(name, "fail" if fail else "warn" if warn else "pass", found, fail or warn)


def examine(config: Config, examinations: Sequence[tuple[str, Examination]]) -> list[Check]:
    """Runs named examinations one after another. What one raises becomes its failed check."""
    checks: list[Check] = []
    for name, examination in examinations:
        try:
            found = examination(config)
            checks.extend([found] if isinstance(found, Check) else found)
        except Exception as error:  # a check that breaks is a finding like any other
            checks.append(failed(name, error))
    return checks


def failed(name: str, error: BaseException, fix: str = "") -> Check:
    """An exception as a failed check, on one line of at most 400 characters. A SlimError says itself how to fix it."""
    found = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ImportError | AttributeError | TypeError | KeyError):
        found = f"{type(error).__name__}: {found}"
    if not fix and not isinstance(error, SlimError):
        fix = "Fix what the message names."
    return Check(name, "fail", found if len(found) <= 400 else found[:397] + "...", fix)


def check_packages(config: Config) -> Iterator[Check]:
    """What the backend rests on is installed, in versions that were tried."""
    backend = config.train.backend
    if backend == "slime":  # checkouts are found as the launch finds them
        sys.path += [os.environ[name] for name in ("SLIME_DIR", "MEGATRON_DIR") if os.environ.get(name)]
    own: list[str] = [config.verl.engine] if backend == "verl" else []
    own += ["wandb"] if "wandb" in config.train.report_to else []
    for name, tried in {**PACKAGES[backend], **dict.fromkeys(own, "*")}.items():
        version, fix = installed_version(name), INSTALL.get(name, INSTALL[backend])
        if not version:
            yield Check(name, "fail", "not installed", fix)
        elif tried != "*":
            fits = fnmatch(version, tried)
            yield verdict(name, version if fits else f"{version}; tried with {tried}", warn="" if fits else fix)


def installed_version(module: str) -> str:
    """The version of an importable module, "unknown" for a checkout, empty if it is not there."""
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        return "unknown" if module in sys.modules or util.find_spec(module) else ""
