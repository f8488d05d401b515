"""A command as a shell runs it (`process`), or in this process, which has its libraries loaded already (`call`)."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def call(*words: object) -> Done:
    """Runs a command in this process: what it prints and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*map(str, words)])
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(words, code, out.getvalue(), err.getvalue())


def run(*words: object) -> str:
    """Runs a command that succeeds; what it prints."""
    done = call(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*words: object) -> str:
    """The one sentence that a command ends with."""
    done = call(*words)
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("slim-rl: "))
    assert done.returncode == 1
    return said
