"""What runs where slime's driver runs (`slim_rl.backends.slime.driver`), on a machine without a GPU: Ray first, in this process, then it.

    python -m slim_rl.backends.slime.cpu.driver SLIME_DIR/train.py [slime's flags]

Ray is told of as many GPUs as the run's layout has; what it hands out under these names are shares of the CPU. Its processes end with this
one. It has no dashboard: nobody submits a job, and the dashboard's agent gives up where cores are busy.
"""

from __future__ import annotations

import sys

import ray

from slim_rl.backends.slime import driver

GPUS = 2  # one for training, one for playing, as slime lays a run out that shares none
_CPUS = (
    4  # Ray's count of shares, and not of cores: one for the rollout manager, one for its lock, the rest for the GPUs
)
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
        _system_config={"worker_niceness": 0},  # Ray's 15 starves on a machine that is busy otherwise
    )
    try:
        return driver.main(sys.argv[1:])
    finally:
        ray.shutdown()


if __name__ == "__main__":
    raise SystemExit(main())
