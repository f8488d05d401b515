"""Deliberate faults, and the tests that notice each.

    python -m tests.breakages              breaks a copy of the tree in each way, and prints which tests fail
    python -m tests.breakages mask kl      only these
    python -m tests.breakages --all-tests  with every test but those of verl's workers and slime's stack, which takes long

A fault that no test notices is an exit status of 1. `test_breakages.py` checks that each fault still applies to today's code.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT


class Fault(NamedTuple):
    """One fault: a replacement that the file holds exactly once, and fast tests that are to fail by it."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def read() -> dict[str, Fault]:
    """Returns the faults of breakages.txt by name: what it is, the file, lines out (-) and in (+), and the tests that notice."""
    faults = {}
    for block in (ROOT / "tests" / "breakages.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        head, file, *lines = block.splitlines()
        before, after = ("\n".join(line[2:] for line in lines if line[0] == mark) for mark in "-+")
        tests = tuple(line for line in lines if line.startswith("tests/"))
        faults[head.partition(":")[0]] = Fault(file, before, after, tests)
    return faults


FAULTS = read()
EVERYTHING = ("-m", "not verl and not slime", "tests")


def applied(fault: Fault, root: Path) -> str:
    """Returns the broken file's text. Raises ValueError unless the fault fits the file in exactly one place."""
    text = (root / fault.file).read_text(encoding="utf-8")
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.file} has {fault.before!r} {text.count(fault.before)} times; adapt breakages.txt.")
    return text.replace(fault.before, fault.after)


def red(root: Path, tests: tuple[str, ...]) -> list[str]:
    """Returns the tests that fail in a tree."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)


def main() -> int:
    """Runs the faults that are named, or all; returns the exit status."""
    parser = argparse.ArgumentParser(description="Break a copy of the tree on purpose and list the tests that fail.")
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], default=[])
    parser.add_argument("--all-tests", action="store_true", help="run every test per fault")
    options = parser.parse_args()
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / ROOT.name
        ignored = shutil.ignore_patterns(".git", ".venv*", "build", "runs", "logs", "plots", "*_cache", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        for place, beside in ((copy / "build", ROOT / "build"), (copy.parent / "shared", ROOT.parent / "shared")):
            if beside.exists():  # slime's sources, and those unpacked
                place.symlink_to(beside)
        for name in options.faults or FAULTS:
            fault = FAULTS[name]
            file, whole = copy / fault.file, (copy / fault.file).read_text(encoding="utf-8")
            file.write_text(applied(fault, copy), encoding="utf-8")
            failing = red(copy, EVERYTHING if options.all_tests else fault.tests)
            file.write_text(whole, encoding="utf-8")
            without = red(copy, tuple(failing)) if failing else []
            failing = [test for test in failing if test not in without]
            unnoticed += not failing
            print(f"{name:9} {len(failing):3} red: {', '.join(failing[:3]) or 'NOT NOTICED'}", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
