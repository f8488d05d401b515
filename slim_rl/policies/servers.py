"""Inference servers for evaluation: a running one, or one that is started for the length of a block.

A started server has its own log; if it does not come up, the error ends with the end of that log.
"""

from __future__ import annotations

import importlib.util
import random
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import last_lines, python_module, running

_PORTS = range(20_000, 30_000)
_STOP_SECONDS = 5  # it has nothing to save; and a server told to end between two weights never does
_MODULES = {"sglang": "sglang.launch_server", "vllm": "vllm.entrypoints.openai.api_server"}


@dataclass(frozen=True, slots=True)
class Server:
    """Server that answers.

    Attributes:
        url: address without a path.
        model: served model name; "" if unknown.
        context: largest number of tokens of prompt and response together; None if unknown.
    """

    url: str
    model: str = ""
    context: int | None = None


def connect(url: str) -> Server:
    """Returns the server at `url` (without a trailing ``/v1``). Raises SlimError if no server answers."""
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--server {url} is not an address. Give one like http://127.0.0.1:30000.")
    try:
        return _described(url)
    except httpx.HTTPStatusError:  # it answers, and does not list its model
        return Server(url)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SlimError(f"No server answers at --server {url} ({error}). Start one, or remove --server.") from error


@dataclass(frozen=True, slots=True)
class Starting:
    """Server that is starting, at `url`."""

    url: str
    engine: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait(self, seconds: float = 1800.0) -> Server:
        """Waits for the server and returns it. Raises SlimError if it ends or does not answer in time."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                _get(f"{self.url}/health")
                return _described(self.url)
            except (httpx.HTTPError, ValueError):  # not yet
                time.sleep(0.2)
        code = self.process.returncode
        what = f"did not answer in {seconds:g} s" if code is None else f"ended with exit code {code}"
        raise SlimError(f"The {self.engine} server {what}; the end of {self.log}:\n{last_lines(self.log)}")


@contextmanager
def starting(
    engine: str, model: str, log: Path, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Starting]:
    """Starts a server of `model` on a free port of this machine, for the length of the block.

    Args:
        engine: sglang or vllm.
        model: folder or hub name.
        log: file of the server's output.
        arguments: further command-line arguments, such as ``--tp 2``.
        environment: environment variables; None: those of this process.

    Raises:
        ConfigError: the engine is not installed.
    """
    if importlib.util.find_spec(engine) is None:
        raise ConfigError(
            f"{engine} is not installed here. Run pip install {engine} on a machine with a GPU, or name a running server with "
            "--server URL."
        )
    url = f"http://127.0.0.1:{_free_port()}"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = python_module(_MODULES[engine], *_arguments(engine, model, url), *arguments)
    with (
        log.open("wb") as output,
        running(command, _STOP_SECONDS, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        yield Starting(url, engine, log, process)


def _arguments(engine: str, model: str, url: str) -> list[str]:
    place = ["--host", "127.0.0.1", "--port", url.rpartition(":")[2]]
    if engine == "sglang":
        return ["--model-path", model, *place]
    # logprobs of the sampled distribution, and no sampling settings of the checkpoint
    return ["--model", model, *place, "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]


def _described(url: str) -> Server:
    answer: Any = _get(f"{url}/v1/models").json()
    try:
        card = answer["data"][0]
        context = card.get("max_model_len")
        return Server(url, str(card["id"]), context if isinstance(context, int) else None)
    except (AttributeError, LookupError, TypeError):
        return Server(url)


def _get(url: str) -> httpx.Response:
    # without a proxy, which does not know this machine's ports
    return httpx.get(url, timeout=10, trust_env=False, follow_redirects=True).raise_for_status()


def _free_port() -> int:
    """Returns a free port with room above it: SGLang also needs the port 10,000 higher."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SlimError(
        f"No port of this machine from {_PORTS[0]} to {_PORTS[-1]} is free. End the processes that use them."
    )
