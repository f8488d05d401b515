"""What runs where slime's driver runs (`slim_rl.backends.slime.driver`), on a machine without a GPU: Ray first, in this process, then it.

    python -m slime_cpu.driver SLIME_DIR/train.py [slime's flags, the address of an SGLang among them]

Ray is told of as many GPUs as the run's layout has; what it hands out under these names are shares of the CPU. Its processes end with this
one. It has no dashboard: nobody submits a job, and the dashboard's agent gives up where cores are busy.
"""

import importlib
import sys
import time

import ray

from slim_rl.backends.slime import driver
from slime_cpu.flags import ENGINE, GPUS
from slime_cpu.server import answers

# Ray's count of shares, and not of cores: one for the rollout manager, one for its lock, the rest for the GPUs
_CPUS = 4
_LOOK_SECONDS = 0.2
# Ray's niceness of 15 starves on a machine that is busy otherwise. At 95% of the memory, its default, it ends a run that would fit.
_RAY = {"worker_niceness": 0, "memory_usage_threshold": 0.98}
_STORE = 200 << 20  # bytes for what actors hand each other: a step's dialogues


def main() -> int:
    """Returns the driver's exit code."""
    ray.init(
        address="local",
        num_cpus=_CPUS,
        num_gpus=GPUS,
        object_store_memory=_STORE,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _system_config=_RAY,
    )
    try:
        importlib.import_module("slime.utils.arguments")  # half a minute, while SGLang starts
        _wait(f"http://{sys.argv[sys.argv.index(ENGINE) + 1]}")
        return driver.main(sys.argv[1:])
    finally:
        ray.shutdown()


def _wait(url: str) -> None:
    """Until SGLang answers. The launch watches it, and ends this process too if it does not come up."""
    while not answers(url):
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
