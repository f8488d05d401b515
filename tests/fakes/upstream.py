"""slime and Megatron as their authors publish them, for tests that run their code.

They are checkouts that SLIME_DIR (or SLIME_DIRS, several, separated by colons) and MEGATRON_DIR name; else the archives beside the
project, unpacked once. Where there is neither, such tests skip with one sentence.
"""

import base64
import importlib
import importlib.util
import os
import sys
import unittest
import warnings
from pathlib import Path
from types import ModuleType

from slime_cpu.sources import unpacked

NO_SLIME = "slime's sources are not here: set SLIME_DIR to a checkout of slime"
NO_MEGATRON = "Megatron's sources are not here: set MEGATRON_DIR to a checkout of Megatron-LM"


def slimes() -> list[Path]:
    """Every checkout of slime at hand: main, and the oldest version that works."""
    named = os.environ.get("SLIME_DIRS") or os.environ.get("SLIME_DIR") or ""
    return [Path(path) for path in named.split(":") if path] or unpacked("slime")


def megatrons() -> list[Path]:
    """The checkout of Megatron-LM, if it is at hand."""
    named = os.environ.get("MEGATRON_DIR")
    return [Path(named)] if named else unpacked("megatron")


def import_slime() -> None:
    """Makes the first slime importable. Without one, the test is skipped."""
    if importlib.util.find_spec("pybase64") is None:
        sys.modules["pybase64"] = base64  # the standard library's decodes the same, slower
    if "slime" not in sys.modules:
        _import("slime.rollout.sglang_rollout", slimes(), NO_SLIME)


def import_megatron(module: str) -> ModuleType:
    """A module of Megatron's core. Without its sources, the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells what it does without
        return _import(f"megatron.core.{module}", megatrons(), NO_MEGATRON)


def _import(module: str, folders: list[Path], otherwise: str) -> ModuleType:
    """Imports from the first of the folders; only its package can be imported from then on, not what else lies beside it."""
    found = [str(folder) for folder in folders[:1]]
    if not found and importlib.util.find_spec(module.partition(".")[0]) is None:
        raise unittest.SkipTest(otherwise)
    sys.path[:0] = found
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise unittest.SkipTest(f"{module} needs {error.name}, which is not installed here") from error
    finally:
        sys.path[:] = [path for path in sys.path if path not in found]
