"""The Makefile is short and lists its own targets; experiments are folders (`tests/lab/test_steps.py`)."""

from __future__ import annotations

import os
import re
import subprocess

from tests.paths import ROOT


def test_bare_make_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    done = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    listed = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert set(listed) == set(phony.split()) and all(5 < len(about.strip()) < 90 for about in listed.values())
    assert len(text.splitlines()) <= 130
