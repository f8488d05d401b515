"""A command as a shell runs it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slim_rl.cli import main
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


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert not ended.value.code


def refused(capsys: Any, *words: object) -> str:
    """The one sentence that a command ends with."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("slim-rl: ")]
    assert ended.value.code == 1 and len(said) == 1
    return str(said[0])
