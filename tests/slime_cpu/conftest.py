"""slime and Megatron on this machine: a server that has imported them, in the environment that `make run-slime` makes."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slime_cpu import sources
from slime_cpu.environment import environment
from slime_cpu.server import last_lines

from slim_rl.processes import running
from tests.paths import ROOT

PYTHON = ROOT / "build" / "slime-env" / "bin" / "python"
_SECONDS = 240  # for the imports, on busy cores


class Slime:
    """Asks the server's functions (`tests.slime_cpu.tasks`), one after the other."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder, self._asked = process, folder, 0

    def __call__(self, task: str, **arguments: Any) -> Any:
        import torch

        self._asked += 1
        output = self.folder / f"{self._asked}-{task}"
        wanted = {"task": task, "arguments": {"folder": f"{output}.run", **arguments}, "output": str(output)}
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(wanted, default=str)}\n".encode())
        self.process.stdin.flush()
        assert self.says() == "ok", last_lines(Path(f"{output}.log"))
        return torch.load(output, weights_only=False)

    def says(self) -> str:
        """The server's next line; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


def need_slime() -> None:
    """Skips where slime's environment or its sources are missing."""
    if not PYTHON.exists():
        pytest.skip("slime's environment is not here: `make test-slime` makes it")
    if not sources.here():
        pytest.skip("slime's and Megatron's sources are not here: set SLIME_DIR and MEGATRON_DIR")


@pytest.fixture(scope="session")
def slime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slime]:
    need_slime()
    folder, (checkout, megatron) = tmp_path_factory.mktemp("slime"), sources.find()
    variables = environment(checkout, megatron) | {"SLIME_DIR": str(checkout), "MEGATRON_DIR": str(megatron)}
    command, log = [str(PYTHON), "-m", "tests.slime_cpu.server"], folder / "server.log"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with log.open("wb") as errors, running(command, cwd=ROOT, env=variables, stderr=errors, **pipes) as process:
        late = threading.Timer(_SECONDS, process.kill)
        late.start()
        asked = Slime(process, folder)
        ready = asked.says()
        late.cancel()
        assert ready == "ready", last_lines(log)
        yield asked
