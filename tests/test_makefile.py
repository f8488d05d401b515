"""The Makefile is short and lists its own targets; experiments are folders (`tests/lab/test_steps.py`)."""

from __future__ import annotations

import re
import subprocess

from tests.paths import ROOT


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert set(listed) == set(phony.split()) and all(10 < len(about) < 90 for about in listed.values())
    assert len(text.splitlines()) <= 150
