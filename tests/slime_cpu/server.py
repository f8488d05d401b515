"""Imports slime, Megatron and SGLang once, which takes a minute, and runs each task in a fork of itself.

    python -m tests.slime_cpu.server      a line of JSON a task on stdin: {"task": name, "arguments": {...}, "output": path}

A task is a function of `tests.slime_cpu.tasks`, imported in the fork. What it prints is in `output`.log, what it returns in `output`, as
torch saves it. A line on stdout says when the server is ready, and how each task ended: ok, or failed.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

_IMPORTED = (
    "ray", "slime.utils.arguments", "slime.backends.megatron_utils.actor", "slime.ray.rollout",
    "slime.rollout.sglang_rollout", "torch.distributed.checkpoint", "transformers.models.qwen3.modeling_qwen3",
    "slime_cpu.layers",
)  # fmt: skip


def main() -> None:
    """Serves until stdin ends."""
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in _IMPORTED:
        importlib.import_module(name)
    print("ready", file=said)
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_run(**wanted))
        _, status = os.waitpid(child, 0)
        print("failed" if status else "ok", file=said)


def _run(task: str, arguments: dict[str, Any], output: str) -> int:
    with Path(f"{output}.log").open("w", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = log
        try:
            import torch

            torch.save(getattr(importlib.import_module("tests.slime_cpu.tasks"), task)(**arguments), output)
            return 0
        except BaseException:
            traceback.print_exc()
            return 1


if __name__ == "__main__":
    main()
