"""A command as a shell runs it (`process`), or in this process (`call`) or a fork of it (`forked`), which have its libraries already."""

import contextlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
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


def forked(output: Path, *words: object, **variables: str) -> BaseProcess:
    """Starts a command in a fork; what it prints is in `output`."""
    process = multiprocessing.get_context("fork").Process(target=_forked, args=(output, words, variables))
    process.start()
    return process


def _forked(output: Path, words: tuple[object, ...], variables: dict[str, str]) -> None:
    with output.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        sys.stdout = sys.stderr = file
        os.environ |= variables
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main([*map(str, words)])


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
