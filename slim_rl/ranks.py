"""Processes of one run on this machine, started by torchrun (`torch.distributed.run`), and the machine's GPUs."""

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import check_processes, environment, output_of

_TORCHRUNS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # which it sets together
# what torch and accelerate take for a run of several processes, and the values that mean one
_LAUNCHERS = {
    "RANK": "0",
    "LOCAL_RANK": "-1",
    "WORLD_SIZE": "1",
    **dict.fromkeys(("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"), "1"),
    **dict.fromkeys(("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM"), "false"),
}


def own_rank() -> int:
    """Returns this process's rank in its run; rank 0 prints and saves. Raises ConfigError as `run_size`."""
    return _variable("RANK", "0")


def run_size() -> int:
    """Returns the number of processes of this run.

    Raises ConfigError if the environment holds no number, or variables of a launcher other than torchrun.
    """
    number = _variable("WORLD_SIZE", "1")
    if any(name not in os.environ for name in _TORCHRUNS):
        for name, alone in _LAUNCHERS.items():
            if (value := os.environ.get(name, alone)) not in ("", alone):
                raise ConfigError(
                    f"{name}={value} in the environment is of a launcher, but {' and '.join(_TORCHRUNS)} are not all set as torchrun sets "
                    f"them: unset it (env -u {name} ...), or start with torchrun."
                )
    return number


def _variable(variable: str, default: str) -> int:
    number = os.environ.get(variable, default)
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(f"{variable}={number!r} in the environment is not a number as torchrun sets it: unset it.")
    return int(number)


def count_gpus() -> int:
    """Counts this machine's GPUs: those that CUDA_VISIBLE_DEVICES names, or else those that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(bool(gpu.strip()) and not gpu.strip().startswith("-") for gpu in visible.split(","))
    return sum(line.startswith("GPU") for line in (output_of("nvidia-smi", "-L") or "").splitlines())


def start_together(number: int, arguments: Sequence[str]) -> None:
    """Starts `number` processes `python -m slim_rl ARGUMENTS`, of which rank 0 prints, and ends this process when they have ended.

    With GPUs there is at most one process per GPU. Does nothing for one process, or in a process with a rank.

    Raises:
        SystemExit: they have ended; its code is that of rank 0, which has said what was wrong.
        SlimError: another one failed.
    """
    if number < 2 or "RANK" in os.environ:
        return
    check_processes(number, "train.processes")
    if (number := min(number, count_gpus() or number)) < 2:
        return
    import torch  # if it is missing, the message is the one that says how to install it
    import torch.distributed.run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.disable()  # torchrun logs a table of a process that fails
    shared = {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with tempfile.TemporaryDirectory() as folder, environment(shared):
        others = ",".join(f"{rank}:3" for rank in range(1, number))  # both their streams go to files
        options = ["--standalone", f"--nproc-per-node={number}", f"--log-dir={folder}", f"--redirects={others}"]
        words = torch.distributed.run.parse_args([*options, "-m", "slim_rl", *arguments])
        try:
            torch.distributed.run.run(words)
        except SignalException as signal:
            raise SystemExit(128 + signal.sigval) from None
        except ChildFailedError as failed:
            if 0 in failed.failures and failed.failures[0].exitcode > 0:
                raise SystemExit(failed.failures[0].exitcode) from None
            rank, failure = failed.get_first_failure()
            logs = (log.read_text(errors="replace") for log in Path(folder).rglob(f"{rank}/stderr.log"))
            last = " ".join(line for log in logs for line in log.splitlines()[-1:])
            raise SlimError(f"Process {rank} of this run stopped with exit code {failure.exitcode}. {last}") from None
        finally:
            logging.disable(logging.NOTSET)
    raise SystemExit(0)
