"""A command as a shell runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.paths import ROOT

Done = subprocess.CompletedProcess[str]


def process(*arguments: str | Path, cwd: Path = ROOT, **options: Any) -> Done:
    """Runs a command as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "slim_rl.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
        **options,
    )
