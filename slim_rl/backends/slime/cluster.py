"""What a launch needs of the machines: slime's and Megatron's checkouts with what their own programs do before a run, a disk that
stays, and Ray. Whatever is started here is stopped here, at the end, on an error or on a signal; nothing else is touched.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.backends import say
from slim_rl.backends.checkpoints import LAST_WHOLE
from slim_rl.backends.gpus import has_nvlink
from slim_rl.backends.slime.arguments import Job, words
from slim_rl.backends.slime.settings import Settings
from slim_rl.config import Config
from slim_rl.errors import ConfigError, SlimError
from slim_rl.files import replacing_folder
from slim_rl.processes import handled_by, last_lines, running, with_packages

DRIVER = "slim_rl.backends.slime.driver"  # checks flags, and runs slime's script
PACKAGES = Path(__file__).resolve().parents[3]  # the folder that slim_rl lies in
# Families whose Hugging Face checkpoints slime reads into Megatron itself, as its own tests do; others are converted first.
_READ_BY_SLIME = ("qwen2", "qwen3", "llama")
_CONVERT_ON_ONE_GPU = 9e9  # parameters above which converting the checkpoint is spread over a node's GPUs
# Set on this machine, they are set for the job too: keys, caches, proxies and network settings.
_PASSED_ON = ("OPENAI_", "WANDB_", "HF_", "NCCL_", "GLOO_", "NVSHMEM_", "SGLANG_", "TENSORBOARD_DIR")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_OWN = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # Megatron's overlap of tensor-parallel communication needs one queue
_START_SECONDS, _ASK_SECONDS = 180, 60


@dataclass(frozen=True)
class Checkouts:
    """slime, Megatron and the interpreter. `slime` is None where it is not installed, `megatron` where it is not found."""

    python: str
    slime: Path | None
    megatron: Path | None

    def path(self, config: Config) -> list[Path]:
        """Where the job's Python looks for packages. slime has a root package named `examples`, as slim_rl has: whose
        comes first is decided by whose the config's environment is.
        """
        theirs = [folder for folder in (self.slime, self.megatron) if folder is not None]
        ours = config.environment.startswith("examples.")
        return list(dict.fromkeys((bundled.ROOT, *theirs, PACKAGES))) if ours else [*theirs, PACKAGES]

    def environment(self, config: Config) -> dict[str, str]:
        """That of a process which needs slime or Megatron."""
        return with_packages(self.path(config)) | _OWN

    def read_directly(self, model: Path, shape: Mapping[str, Any]) -> bool:
        """Whether slime starts from this Hugging Face checkpoint without a conversion. Where there is no slime: whether today's would."""
        reader = self.slime and self.slime / "slime/backends/megatron_utils/hf_to_megatron"
        only_pickles = any(model.glob("*.bin")) and not any(model.glob("*.safetensors"))
        return (reader is None or reader.is_dir()) and shape.get("model_type") in _READ_BY_SLIME and not only_pickles


def find_checkouts(settings: Settings, dry_run: bool) -> Checkouts:
    """Raises ConfigError if slime or Megatron is not where the settings say, or slime not installed; a dry run needs neither."""
    slime = Path(settings.slime_dir).expanduser() if settings.slime_dir else _package_dir("slime")
    if slime is None or not (slime / "train.py").is_file():
        if settings.slime_dir or not dry_run:
            where = f" in {slime}" if slime else ""
            raise ConfigError(
                f"slime is not found{where}: set SLIME_DIR to its checkout, the folder that holds train.py."
            )
        slime = None
    megatron: Path | None = None
    if settings.megatron_dir:
        megatron = Path(settings.megatron_dir).expanduser().absolute()
        if not (megatron / "megatron").is_dir():
            raise ConfigError(f"Megatron-LM is not found in {megatron}: set MEGATRON_DIR to its checkout.")
    elif slime is not None:
        beside = slime.absolute().parent / "Megatron-LM"  # so it lies in slime's container
        megatron = beside if beside.is_dir() else _package_dir("megatron")
    python = os.environ.get("PYTHON") or sys.executable
    return Checkouts(str(Path(python).absolute()) if "/" in python else python, slime and slime.absolute(), megatron)


def _package_dir(name: str) -> Path | None:
    """The folder that holds a package, if it is there."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent


def submit(job: Job, checkouts: Checkouts, flags: Sequence[str], gpus: int) -> int:
    """Runs slime's script with these flags as a job of Ray's, on a machine of so many `gpus`. Returns the job's exit code.

    Raises:
        SlimError: the checkpoint could not be converted, slime refuses the flags, or Ray did not start.
    """
    config = job.config
    if job.start != Path(config.policy.model):
        _convert(job, checkouts, gpus)
    if gpus:  # Megatron's parser asks a GPU for its kind
        _check_flags(job, checkouts, flags)
    with _ray_cluster(job.settings.num_nodes, job.layout.node_gpus, job.folder / "ray.log") as environment:
        runtime = runtime_environment(checkouts.path(config), has_nvlink(), config.partner.openai.api_key_env)
        if "tensorboard" in config.train.report_to:
            runtime["env_vars"].setdefault("TENSORBOARD_DIR", str(job.folder / "tensorboard"))
        say(
            f"{config.name}: {config.train.steps} steps of {config.train.games_per_step} games, {config.train.group_size} dialogues "
            f"each; everything is in {job.folder}"
        )
        name = f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        command = [checkouts.python, "-m", DRIVER, f"{checkouts.slime}/{job.entry}", *flags]
        return _run_job(name, command, runtime, environment)


def _convert(job: Job, checkouts: Checkouts, gpus: int) -> None:
    """Converts the checkpoint to Megatron's format, whole or not at all, unless that is done."""
    model, target = job.config.policy.model, job.start
    if (target / LAST_WHOLE).is_file():
        return
    if target.exists():
        raise ConfigError(
            f"{target} exists but holds no complete checkpoint; remove it, or set TORCH_DIST to another path."
        )
    if not gpus:
        raise ConfigError(f"{target} is missing and converting takes a GPU: start this on a GPU node once.")
    say(f"converting {model} to {target}")
    processes = min(job.layout.actor_gpus, gpus) if job.layout.parameters > _CONVERT_ON_ONE_GPU else 1
    command = [checkouts.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [f"{checkouts.slime}/tools/convert_hf_to_torch_dist.py", *words(job.model_flags or {})]
    with replacing_folder(target) as unfinished:
        command += ["--hf-checkpoint", model, "--save", str(unfinished)]
        with running(command, env=checkouts.environment(job.config)) as process:
            if process.wait():
                raise SlimError("the conversion failed; its own message is above. Nothing was left behind.")


def _check_flags(job: Job, checkouts: Checkouts, flags: Sequence[str]) -> None:
    """Runs slime's own parsers over the flags. Raises SlimError with the end of their answer if they refuse them."""
    say("checking the flags with slime's own parsers")
    log = job.folder / "flags.log"
    command = [checkouts.python, "-m", DRIVER, "--check", *flags]
    environment = checkouts.environment(job.config)
    with log.open("wb") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print(last_lines(log), file=sys.stderr)
        raise SlimError(f"slime refuses this command line (its full answer: {log}).")


# ----------------------------------------------------------------------------------------------------------------- disks
def check_save_dir(folder: Path, nodes: int, dry_run: bool, mounts: str | None = None) -> str:
    """A warning if what is saved in `folder` would be gone with the container, or nothing.

    Args:
        mounts: the text of /proc/self/mountinfo; None: this machine's, where there is one.

    Raises:
        ConfigError: it would, and the run has several nodes (a dry run saves nothing and only warns).
    """
    if mounts is None:
        with contextlib.suppress(OSError):
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    if file_system(folder, mounts or "") != "overlay":
        return ""
    wrong = f"SAVE_DIR {folder} lies on the container's own layer and is gone with the container"
    if nodes > 1 and not dry_run:
        raise ConfigError(
            f"{wrong}, and other nodes do not see it: mount a shared disk and set SAVE_DIR to a folder on it."
        )
    return f"{wrong}: mount a disk and set SAVE_DIR to a folder on it."


def file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that holds `folder`, which need not exist yet, by the text of a mountinfo file."""
    path = Path(os.path.realpath(folder))
    mounted: dict[Path, str] = {}  # the last of several on one point is on top
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if separator and len(fields) > 4:
            mounted[Path(fields[4].replace("\\040", " "))] = right.split(" ")[0]
    return next((mounted[point] for point in (path, *path.parents) if point in mounted), "")


# ------------------------------------------------------------------------------------------------------------------- Ray
def runtime_environment(path: Sequence[Path], nvlink: bool, key: str = "") -> dict[str, Any]:
    """The Ray job's runtime environment. Keys (`key` names the partner's) travel in it, and not on a command line that every
    user of the machine can read.

    Args:
        path: folders that Python finds packages in, before those of this process.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name == key or name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    variables |= {"PYTHONPATH": with_packages(path)["PYTHONPATH"], "PYTHONUNBUFFERED": "1"} | _OWN
    variables.setdefault("NCCL_NVLS_ENABLE", str(int(nvlink)))
    return {"env_vars": variables}


@contextlib.contextmanager
def _ray_cluster(nodes: int, node_gpus: int, log: Path) -> Iterator[dict[str, str]]:
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
    if _ask(["status"], environment)[0]:
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
        taken, answer = _ask(["job", "submit", "--no-wait", "--", "true"], environment)
        if taken:
            return
        if head.poll() is not None:
            raise SlimError(f"Ray's head did not start; see {log}.")
        if time.monotonic() > deadline:
            raise SlimError(f"Ray's head accepts no jobs (is ray[default] installed?): {answer}")
        time.sleep(1)


def _ask(words: Sequence[str], environment: Mapping[str, str]) -> tuple[bool, str]:
    """Whether Ray does as it is asked, and the last line of its answer."""
    try:
        done = subprocess.run(
            ["ray", *words], env=environment, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False, "no answer for a minute"
    return done.returncode == 0, (done.stdout + done.stderr).strip().rpartition("\n")[2]


def _run_job(job: str, command: Sequence[str], runtime: Mapping[str, Any], environment: Mapping[str, str]) -> int:
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
                    _ask(["job", "stop", job], environment)
                raise
