"""The names that slime has moved, found in trees of both layouts; and slimes that are too old, refused in one sentence.

Where slime's own sources are at hand, the same is asked of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

SAMPLE = """
from dataclasses import dataclass
@dataclass
class Sample:
    index: int | None = None
"""
NOW = SAMPLE + "    rollout_id: int | None = None\n    def append_response_tokens(self): ...\n"
NAMES = {
    "trace_utils": "def trace_span(): return HOME\ndef build_sglang_meta_trace_attrs(): ...\n",
    "metric_utils": "def compute_rollout_step(): ...\n",
    "logging_utils": "def log(): ...\n",
}


def tree(folder: Path, home: str, sample: str = NOW, extra: str = "") -> Path:
    for package in ("utils", home):
        (folder / "slime" / package).mkdir(parents=True, exist_ok=True)
        (folder / "slime" / package / "__init__.py").touch()
    (folder / "slime" / "__init__.py").touch()
    (folder / "slime" / "utils" / "types.py").write_text(sample)
    for module, text in NAMES.items():
        (folder / "slime" / home / f"{module}.py").write_text(f"{extra}\nHOME = {home!r}\n{text}")
    return folder


def load(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from slim_rl.backends.slime import compat; print(compat.trace_span.__module__)"
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("home", ["observability", "utils"])
def test_the_names_are_found_in_either_place(tmp_path: Path, home: str) -> None:
    done = load(tree(tmp_path, home))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"slime.{home}.trace_utils"


def test_a_slime_that_is_too_old_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = load(tree(tmp_path, "utils", SAMPLE))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "too old: its Sample has no append_response_tokens and no rollout_id; use v0.3.1" in last


def test_a_slime_without_the_names_is_refused_by_name(tmp_path: Path) -> None:
    folder = tree(tmp_path, "utils")
    (folder / "slime" / "utils" / "metric_utils.py").unlink()
    assert "This slime has compute_rollout_step neither in" in load(folder).stderr


def test_what_slime_itself_misses_is_not_hidden(tmp_path: Path) -> None:
    assert (
        "No module named 'nowhere_at_all'"
        in load(tree(tmp_path, "observability", extra="import nowhere_at_all")).stderr
    )


@pytest.mark.parametrize("checkout", slimes() or [None], ids=str)
def test_slimes_own_tree(checkout: Path | None) -> None:
    if checkout is None:
        pytest.skip(NO_SLIME)
    done = load(checkout)
    assert done.returncode == 0, done.stderr
