"""Ray and the processes of a launch. Whatever is started here is stopped here, at the end, on an error or on a signal; nothing
else is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl.backends import say
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import handled_by, running, with_packages

# Set on this machine, they are set for the job too: keys, caches, proxies and network settings.
PASSED_ON = ("OPENAI_", "WANDB_", "HF_", "NCCL_", "GLOO_", "NVSHMEM_", "SGLANG_", "TENSORBOARD_DIR")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_START_SECONDS, _STOP_SECONDS = 180, 60


def runtime_environment(path: Sequence[Path], nvlink: bool, key: str = "") -> dict[str, Any]:
    """The Ray job's runtime environment. Keys (`key` names the partner's) travel in it, and not on a command line that every
    user of the machine can read.

    Args:
        path: folders that Python finds packages in, before those of this process.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name == key or name.startswith(PASSED_ON) or name.lower() in PROXIES
    }
    variables |= {
        "PYTHONPATH": with_packages(path)["PYTHONPATH"],
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron's overlap of tensor-parallel communication needs one queue
    }
    variables.setdefault("NCCL_NVLS_ENABLE", str(int(nvlink)))
    return {"env_vars": variables}


@contextlib.contextmanager
def ray_cluster(nodes: int, node_gpus: int, log: Path) -> Iterator[dict[str, str]]:
    """The environment of commands to a Ray cluster: the one RAY_ADDRESS names, one that runs here, or one with its head here.

    Raises:
        SlimError: the head did not start.
    """
    if shutil.which("ray") is None:
        raise SlimError("Ray is not installed: use slime's container, or pip install 'ray[default]'.")
    environment = dict(os.environ)
    # Where the user has a token, newer heads of Ray ask for it, and its other commands send it only if told to.
    if not environment.get("RAY_AUTH_MODE") and (
        environment.get("RAY_AUTH_TOKEN") or (Path.home() / ".ray" / "auth_token").is_file()
    ):
        environment["RAY_AUTH_MODE"] = "token"
    if environment.get("RAY_ADDRESS"):
        say(f"joining the Ray cluster at {environment['RAY_ADDRESS']}")
        yield environment
        return
    if _succeeds(["ray", "status"], environment, 30):
        say("using the Ray cluster that runs on this machine")
        yield environment | {"RAY_ADDRESS": "auto"}
        return
    address = environment.get("MASTER_ADDR") or (_own_address() if nodes > 1 else "127.0.0.1")
    port = environment.get("RAY_PORT") or "6379"
    if not (port.isascii() and port.isdigit()):
        raise ConfigError(f"RAY_PORT is {port!r}; it must be a port's number.")
    # port 0: any that is free, for there may be another's Ray on this machine
    command = ["ray", "start", "--head", "--block", "--node-ip-address", address, "--port", port]
    command += ["--dashboard-agent-listen-port", "0", "--num-gpus", str(node_gpus), "--disable-usage-stats"]
    joined = environment | {"RAY_ADDRESS": f"{address}:{port}"}
    with log.open("wb") as output, running(command, stdout=output, stderr=output, env=environment) as head:
        _wait_for(head, joined, log)
        if nodes > 1:
            other = f"ray start --address={address}:{port} --num-gpus={node_gpus} --block"
            say(f"on each of the other {nodes - 1} nodes run now: {other}")
        yield joined


def _own_address() -> str:
    """This machine's address as other machines see it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def _wait_for(head: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path) -> None:
    """Waits until the head takes jobs, which comes up last."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            done = subprocess.run(
                ["ray", "job", "submit", "--no-wait", "--", "true"],
                env=environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return
            answer = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        except subprocess.TimeoutExpired:
            answer = "no answer for a minute"
        if head.poll() is not None:
            raise SlimError(f"Ray's head did not start; see {log}.")
        if time.monotonic() > deadline:
            raise SlimError(f"Ray's head accepts no jobs (is ray[default] installed?): {answer}")
        time.sleep(1)


def _succeeds(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> bool:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def run_job(job: str, command: Sequence[str], runtime: Mapping[str, Any], environment: Mapping[str, str]) -> int:
    """Submits a job, follows its output and returns its exit code. Left early, the job is stopped."""
    with tempfile.NamedTemporaryFile("w", prefix="slim-rl-", suffix=".json") as file:  # readable by its owner alone
        json.dump(runtime, file)
        file.flush()
        submit = ["ray", "job", "submit", "--submission-id", job, "--runtime-env", file.name, "--", *command]
        with running(submit, env=environment) as follower:
            try:
                return follower.wait()
            except BaseException:
                with handled_by(signal.SIG_IGN):
                    say(f"stopping the job {job}")
                    _succeeds(["ray", "job", "stop", job], environment, _STOP_SECONDS)
                raise
