"""`ray job submit` without a GPU: the job replaces this process, with its output in the run's slime.log.

python -P -m slime_cpu.job job submit --runtime-env FILE ... -- PYTHON -P -m slim_rl.backends.slime.driver SCRIPT FLAGS
"""

import json
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Runs the job's Python in the job's environment, by the driver that starts Ray itself."""
    end = arguments.index("--")
    runtime = json.loads(Path(arguments[arguments.index("--runtime-env", 0, end) + 1]).read_text(encoding="utf-8"))
    python, _, _, _, *rest = arguments[end + 1 :]
    with (Path(os.environ["SAVE_DIR"]) / "slime.log").open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    variables = os.environ | runtime["env_vars"] | {"PATH": os.environ["PATH"].partition(os.pathsep)[2]}  # Ray itself
    variables.pop("RAY_ADDRESS", None)
    os.execve(python, [python, "-P", "-m", "slime_cpu.driver", *rest], variables)


if __name__ == "__main__":
    main(sys.argv[1:])
