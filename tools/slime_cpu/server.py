"""SGLang's server, started for the length of a block. If it does not come up, the error ends with the end of its log."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from slim_rl.errors import SlimError
from slim_rl.processes import python_module, running

_PORTS = range(20_000, 30_000)
_STOP_SECONDS = 5  # it has nothing to save; and a server told to end between two weights never does


def answers(url: str) -> bool:
    """Returns True if the server at `url` is ready."""
    try:
        return httpx.get(f"{url}/health", timeout=10, trust_env=False, follow_redirects=True).is_success
    except httpx.HTTPError:
        return False


@dataclass(frozen=True, slots=True)
class Starting:
    """Server that is starting, at `url`."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait(self, seconds: float = 1800.0) -> None:
        """Waits for the server. Raises SlimError if it ends or does not answer in time."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            if answers(self.url):
                return
            time.sleep(0.2)
        code = self.process.returncode
        what = f"did not answer in {seconds:g} s" if code is None else f"ended with exit code {code}"
        raise SlimError(f"The SGLang server {what}; the end of {self.log}:\n{last_lines(self.log)}")


def last_lines(log: Path) -> str:
    """Returns the last lines of a log file."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


@contextmanager
def starting(model: str, log: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Starting]:
    """Starts a server of the folder `model` on a free port of this machine, for the length of the block.

    Args:
        log: file of the server's output.
        arguments: further command-line arguments, such as ``--device cpu``.
    """
    port = _free_port()
    place = ["--model-path", model, "--host", "127.0.0.1", "--port", str(port)]
    command = python_module("sglang.launch_server", *place, *arguments)
    with (
        log.open("wb") as output,
        running(command, _STOP_SECONDS, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        yield Starting(f"http://127.0.0.1:{port}", log, process)


def _free_port() -> int:
    """Returns a free port with room above it: SGLang also needs the port 10,000 higher."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SlimError(
        f"No port of this machine from {_PORTS[0]} to {_PORTS[-1]} is free. End the processes that use them."
    )
