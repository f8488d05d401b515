"""Further processes of one command on this machine, joined by torch.distributed; this process is rank 0.

The others print nothing. They end with this process, also on a signal. If one of them fails, its last line is the error.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import check_processes, environment, python_module, signals_end_the_run

_TIMEOUT = 20.0  # seconds for a process to end by itself
_NOTICED = 10.0  # seconds to wait for this process's own error after another has ended


def own_rank() -> int:
    """Returns this process's rank in its run; rank 0 prints and saves. Raises ConfigError as `run_size`."""
    return _variable("RANK", "0")


def run_size() -> int:
    """Returns the number of processes of this run. Raises ConfigError if the environment holds no number."""
    return _variable("WORLD_SIZE", "1")


def _variable(variable: str, default: str) -> int:
    number = os.environ.get(variable, default)
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(f"{variable}={number!r} in the environment is not a number as torchrun sets it: unset it.")
    return int(number)


@contextmanager
def joined_by(number: int, arguments: Sequence[str]) -> Iterator[None]:
    """Runs `number` - 1 further processes `python -m slim_rl ARGUMENTS`; none in a process with a rank.

    Raises:
        SlimError: one of them failed.
    """
    if number < 2 or "RANK" in os.environ:
        yield
        return
    check_processes(number, "train.processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if "OMP_NUM_THREADS" not in os.environ:
        shared["OMP_NUM_THREADS"] = "1"  # as torchrun sets it; else each process uses all cores
    with signals_end_the_run(), ExitStack() as stack:
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(1, number)]
        others = [
            subprocess.Popen(
                python_module("slim_rl", *arguments),
                env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error,
            )
            for rank, error in enumerate(errors, 1)
        ]
        stack.callback(_end, others)
        stack.enter_context(environment(shared | {"RANK": "0", "LOCAL_RANK": "0"}))
        done = threading.Event()
        stack.callback(done.set)
        threading.Thread(target=_watch, args=(others, errors, done), daemon=True).start()
        try:
            yield
            # This process has written everything. On a busy machine the others may take longer to exit; `_end` ends them.
            with suppress(subprocess.TimeoutExpired):
                for process in others:
                    process.wait(_TIMEOUT)
        except (SlimError, ModuleNotFoundError):  # this process's own sentence; the others may have the same
            raise
        except Exception as error:
            if sentence := _last_words(others, errors, 1.0):
                raise SlimError(sentence) from error
            raise


def _watch(processes: Sequence[subprocess.Popen[bytes]], errors: Sequence[Any], done: threading.Event) -> None:
    """Ends this process if another has failed: it may wait for it, where no exception reaches."""
    while not done.wait(1.0):
        if any(process.poll() for process in processes) and not done.wait(_NOTICED):
            print(f"slim-rl: {_last_words(processes, errors)}", file=sys.stderr, flush=True)
            _end(processes)
            os._exit(1)


def _last_words(processes: Sequence[subprocess.Popen[bytes]], errors: Sequence[Any], timeout: float = 0.0) -> str:
    """Returns a sentence on the first process that failed; empty if none did."""
    for rank, (process, error) in enumerate(zip(processes, errors, strict=True), 1):
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            continue
        if code:
            error.seek(0)
            lines = error.read().decode(errors="replace").strip().splitlines()
            return f"Process {rank} of this run stopped: {lines[-1] if lines and code > 0 else f'exit code {code}'}"
    return ""


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
