"""Runs of `python -m slime_cpu` with real Ray, real SGLang and its router, slime's script and Megatron; their partner is an endpoint
beside the tests.
"""

import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import psutil
import torch
from slime_cpu.server import last_lines

from tests.fakes.openai_server import OpenAIServer
from tests.paths import ROOT
from tests.slime_cpu.conftest import PYTHON

STEPS, RATE, DIALOGUES, SECONDS = 6, 1e-3, 32, 400
_LOOK_SECONDS = 0.02
_PARTNER = {"outage_wait_minutes": 0.5, "budget_usd": "null"}  # its endpoint may be away for some seconds


@dataclass
class Run:
    """A run in a folder, by the command that a user would type. `mark` is in the environment of every process it starts."""

    folder: Path
    partner: OpenAIServer
    mark: str = field(default_factory=lambda: f"slime-run-{uuid.uuid4().hex}")

    @property
    def environment(self) -> dict[str, str]:
        path = f"{ROOT}:{ROOT / 'tools'}"
        return os.environ | {"PYTHONPATH": path, "OPENAI_API_KEY": "none", "SLIM_RL_TEST": self.mark}

    def start(self, log: Path, *overrides: str, own: Sequence[str] = (), **variables: str) -> "Started":
        """Starts the run with slime's flags `own` and settings of the launch script."""
        changes = ["name=run", "policy.top_p=1", f"data.train={self.folder.parent}/games.jsonl", "data.num_train=200"]
        changes += ["data.eval=null", f"train.steps={STEPS}", "train.games_per_step=4"]
        changes += [f"train.group_size={DIALOGUES // 4}", f"train.learning_rate={RATE}", "train.lr_schedule=linear"]
        changes += ["train.lr_decay_steps=0", "train.warmup_steps=0"]
        changes += ["partner.kind=openai", "partner.args={accept_fraction: 0.0}"]
        openai = _PARTNER | {"base_url": self.partner.url}
        changes += [*(f"partner.openai.{key}={value}" for key, value in openai.items()), *overrides]
        words = ["configs/matching_local.yaml", *(f"--set={change}" for change in changes)]
        words += ["--save-debug-rollout-data", f"{self.folder}/played/{{rollout_id}}.pt", *own]
        environment = self.environment | {"SAVE_DIR": str(self.folder), **variables}
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, "process_group": 0}
        command = [str(PYTHON), "-m", "slime_cpu", *words]
        with log.open("wb") as output:
            return Started(subprocess.Popen(command, stdout=output, stderr=output, **options), log, self.mark)

    def logged(self) -> list[dict[str, Any]]:
        """The dialogues in the steps' log, of which the last may be on its way."""
        path = self.folder / "logs" / "train.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def games(self, step: int) -> list[str]:
        """The games that a step has in the log."""
        return sorted({line["game_id"] for line in self.logged() if line["step"] == step})

    def samples(self) -> dict[int, list[dict[str, Any]]]:
        """Step -> slime's samples, as they are trained on; without those of a file that is being written."""
        files = (self.folder / "played").glob("*.pt")
        whole = (file for file in files if is_zipfile(file))  # torch writes a zip file, whose end is its directory
        return {int(file.stem): torch.load(file, weights_only=False)["samples"] for file in whole}

    def measured(self) -> dict[str, list[float]]:
        """What slime has printed of its steps, over all starts: metric -> values, in order."""
        found = defaultdict[str, list[float]](list)
        for line in _METRICS.finditer((self.folder / "slime.log").read_text(encoding="utf-8", errors="replace")):
            for name, value in _METRIC.findall(line[1]):
                found[name].append(float(value))
        return found


@dataclass
class Started:
    """The process of one start of a run, and what it says.

    Attributes:
        seen: the processes below it when it was last looked at. SGLang's write over their environment, and have no mark.
    """

    process: subprocess.Popen[bytes]
    log: Path
    mark: str
    seen: list[psutil.Process] = field(default_factory=list)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def until(self, happened: Callable[[], Any], seconds: float = SECONDS) -> None:
        """Waits for something to happen in the run."""
        deadline = time.monotonic() + seconds
        while not happened():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.interrupt()
                raise AssertionError(f"it ended, or did not come to that in {seconds:g} s:\n{last_lines(self.log)}")
            time.sleep(_LOOK_SECONDS)
        if self.process.poll() is None:
            self.seen = psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> int:
        """As Ctrl-C does. Returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def kill_the_engine(self) -> None:
        """SGLang's server, as the kernel kills a process for memory."""
        children = psutil.Process(self.process.pid).children()
        (engine,) = [child for child in children if "sglang.launch_server" in child.cmdline()]
        engine.kill()

    def ended(self, seconds: float = SECONDS) -> int:
        """Waits for the end. Returns the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.interrupt()
            raise AssertionError(f"not over in {seconds:g} s:\n{last_lines(self.log)}") from None

    def left(self) -> list[str]:
        """The command lines of its processes that are still there, some seconds after it."""
        deadline = time.monotonic() + 10
        while (found := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def _processes(self) -> Iterator[str]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # gone, or another user's
                ours = process in self.seen or process.environ().get("SLIM_RL_TEST") == self.mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield " ".join(process.cmdline())


def versions(sample: dict[str, Any]) -> dict[str, bool]:
    """The versions of the engine's weights that have said something in a dialogue; and whether any of it is trained on."""
    turns = [turn["span"] for turn in sample["metadata"]["dialogue"]["turns"] if turn["role"] == "policy"]
    found: dict[str, bool] = {}
    for version, (begin, end) in zip(sample["weight_versions"], turns, strict=True):
        found[version] = found.get(version, False) or any(sample["loss_mask"][begin:end])
    return found


# What slime prints of a step, such as "perf 1: {'perf/step_time': 12.5}".
_METRICS = re.compile(r"\b(?:perf|rollout|step) \d+: \{(.*)\}")
_METRIC = re.compile(r"'([\w/.-]+)': (?:np\.float64\()?(-?\d[\d.]*(?:e[+-]?\d+)?)")
