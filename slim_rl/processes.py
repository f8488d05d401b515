"""Child processes, each stopped at the end of its block, on an error or on a signal."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from slim_rl.errors import ConfigError

LEAST_PROCESSES = 16  # processes that any machine may run
_STOP_SECONDS = 60


@contextlib.contextmanager
def running(
    command: Sequence[str], stop_seconds: float = _STOP_SECONDS, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a child process, and ends it and its children when the block is left.

    Args:
        stop_seconds: seconds from SIGTERM to SIGKILL.
    """
    # in its own process group: a Ctrl-C reaches only this process, which ends its children in order
    late: list[int] = []  # signals during the start are raised once the child can be ended
    with handled_by(lambda number, _: late.append(number)):
        process = subprocess.Popen(command, process_group=0, **options)
    try:
        for number in late:
            signal.raise_signal(number)
        yield process
    finally:
        if process.poll() is None:
            with handled_by(signal.SIG_IGN):  # a second Ctrl-C must not leave the child running
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(stop_seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # children of a killed process survive it
        process.wait()


def output_of(*words: str) -> str | None:
    """Returns what a program prints; None if it fails or is missing."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def python_module(name: str, *arguments: str) -> list[str]:
    """Returns the command of a Python module that imports nothing from the working folder."""
    return [sys.executable, "-P", "-m", name, *arguments]


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the block and the processes that it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def check_processes(number: int, key: str) -> None:
    """Raises ConfigError for more processes than this machine could run at once."""
    most = max(LEAST_PROCESSES, os.cpu_count() or 1)
    if number > most:
        raise ConfigError(f"{key}={number} is more than this machine can run at once; set it to {most} or fewer.")


@contextlib.contextmanager
def signals_end_the_run() -> Iterator[None]:
    """Turns Ctrl-C, a hang-up and SIGTERM into SystemExit, with the exit codes of a shell."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(143 if number == signal.SIGHUP else 128 + number)

    with handled_by(end):
        yield


@contextlib.contextmanager
def interruptible(how: str) -> Iterator[None]:
    """Prints `how` to continue when a signal ends the block, and exits with a shell's code."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        code = stop.code if isinstance(stop, SystemExit) else 128 + signal.SIGINT
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM) and "RANK" not in os.environ:
            print(f"slim-rl: interrupted; {how}", file=sys.stderr, flush=True)
        raise SystemExit(code) from None


@contextlib.contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    """Handles SIGINT, SIGTERM and SIGHUP by `handler` in the block; has no effect outside the main thread."""
    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if here else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
