"""Inference servers for evaluation: one that runs, by its URL, or one that is started here and stopped when its block is left.

A server that is started has its own log; if it does not come up, the end of that log is in the error.
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
_STOP_SECONDS = 5  # nothing in it is to be saved; and one that is told to end between two weights never does
_MODULES = {"sglang": "sglang.launch_server", "vllm": "vllm.entrypoints.openai.api_server"}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Attributes:
        url: its address, without a path.
        model: the name it serves its model by; "" where it does not tell.
        context: tokens of prompt and response together, at most; None where it does not tell.
    """

    url: str
    model: str = ""
    context: int | None = None


def connect(url: str) -> Server:
    """The server at `url` (a trailing ``/v1`` is taken off). Raises SlimError if none answers there."""
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--server {url} is not an address: give one like http://127.0.0.1:30000.")
    try:
        return _described(url)
    except httpx.HTTPStatusError:  # it is there, and does not tell what it serves
        return Server(url)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SlimError(f"No server answers at {url} ({error}): start one, or leave --server out.") from error


@dataclass(frozen=True, slots=True)
class Starting:
    """A server that is on its way up, at `url`."""

    url: str
    engine: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait(self, seconds: float = 1800.0) -> Server:
        """The server, once it answers. Raises SlimError if it ends, or does not come up in time."""
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
    engine: str,
    model: str,
    log: Path,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Starting]:
    """A server of `model` on a free port of this machine, for the length of the block.

    Args:
        engine: sglang or vllm.
        model: a folder or hub name.
        log: what the server prints.
        arguments: further words of its command line, such as ``--tp 2``.
        environment: its variables; None: this process's.

    Raises:
        ConfigError: the engine is not installed.
    """
    if importlib.util.find_spec(engine) is None:
        raise ConfigError(
            f"{engine} is not installed here: pip install {engine} on a machine with a GPU, or name a server that runs with "
            "--server URL."
        )
    url = f"http://127.0.0.1:{_free_port()}"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = python_module(_MODULES[engine], *_words(engine, model, url), *arguments)
    with (
        log.open("wb") as output,
        running(command, _STOP_SECONDS, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        yield Starting(url, engine, log, process)


def _words(engine: str, model: str, url: str) -> list[str]:
    place = ["--host", "127.0.0.1", "--port", url.rpartition(":")[2]]
    if engine == "sglang":
        return ["--model-path", model, *place]
    # logprobs of the distribution that is sampled from, and no sampling settings of the checkpoint's own
    own = ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    return ["--model", model, *place, *own]


def _described(url: str) -> Server:
    answer: Any = _get(f"{url}/v1/models").json()
    try:
        card = answer["data"][0]
        context = card.get("max_model_len")
        return Server(url, str(card["id"]), context if isinstance(context, int) else None)
    except (AttributeError, LookupError, TypeError):
        return Server(url)


def _get(url: str) -> httpx.Response:
    # straight to it, as the policies' own requests go: a proxy does not know this machine's ports
    return httpx.get(url, timeout=10, trust_env=False, follow_redirects=True).raise_for_status()


def _free_port() -> int:
    """One with room above it: SGLang asks for another 10,000 higher, and ends where there is no such port."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SlimError(f"No port of this machine from {_PORTS[0]} to {_PORTS[-1]} is free; end what holds them.")
