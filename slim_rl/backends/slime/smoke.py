"""Smoke test of a GPU node: train a few steps, stop, resume, export, evaluate; then a Markdown table of measurements.

    python -m slim_rl.backends.slime.smoke FOLDER [slime's flags]        (scripts/smoke_cluster.sh)

Every stage is the command that a user would type, with its output in FOLDER/STAGE.log. A number that nothing reported is "not
measured". A stage that fails ends the test, and the table shows how far it came.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from slim_rl.backends.checkpoints import LAST_WHOLE, last_whole
from slim_rl.backends.checks import GIB
from slim_rl.backends.export import read_results, read_run
from slim_rl.backends.gpus import find_gpus
from slim_rl.backends.slime.checkouts import PACKAGES
from slim_rl.backends.slime.launch import SCRIPT
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.errors import SlimError
from slim_rl.processes import last_lines, python_module, running, signals_end_the_run, with_packages

STEPS, GAMES_PER_STEP = 3, 8
NOTHING = "not measured"
# What slime prints of a step, such as "perf 1: {'perf/step_time': 12.5}".
_METRICS = re.compile(r"\b(?:perf|rollout|step) \d+: \{(.*)\}")
_METRIC = re.compile(r"'([\w/.-]+)': (?:np\.float64\()?(-?\d[\d.]*(?:e[+-]?\d+)?)")
_TABLE = (  # (what, slime's name, unit, decimals)
    ("step, after the first", "perf/step_time", "s", 1),
    ("playing", "perf/rollout_time", "s a step", 1),
    ("training", "perf/actor_train_time", "s a step", 1),
    ("tokens played", "perf/tokens_per_gpu_per_sec", "a second and GPU", 0),
    ("tokens trained on", "perf/actor_train_tok_per_s", "a second", 0),
    ("prefix cache hits", "rollout/prefix_cache_hit_rate", "of the prompt tokens", 3),
    ("train against rollout logprobs", "train/train_rollout_logprob_abs_diff", "mean absolute difference", 4),
)


@dataclass
class Stage:
    """Command of the test: its name, duration in seconds, and outcome."""

    name: str
    seconds: float = 0.0
    done: bool = False
    note: str = ""


@dataclass
class Smoke:
    """The test in a folder.

    Attributes:
        folder: logs, the run, the exported model, the evaluation.
        words: flags of slime's, for the launch script.
        engine: what samples the exported checkpoint.
        games: held-out games it plays.
        limit: seconds that a stage may take.
    """

    folder: Path
    words: Sequence[str] = ()
    engine: str = "sglang"
    games: int = 50
    limit: float = 3600.0
    stages: list[Stage] = field(default_factory=list)
    memory: float = 0.0  # bytes of the fullest GPU

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def all(self) -> bool:
        """Runs every stage until one fails. Returns True if none did."""
        if (self.run / LAST_WHOLE).exists():
            raise SlimError(f"{self.run} holds an earlier smoke test; name another folder, or remove this one.")
        self.folder.mkdir(parents=True, exist_ok=True)
        exported = self.folder / "model"
        command = python_module("slim_rl")
        evaluate = ["evaluate", str(self.run / "config.yaml"), "--checkpoint", str(exported), "--engine", self.engine]
        evaluate += ["--games", str(self.games), "--output", str(self.folder / "evaluation")]
        return (
            self.train_and_stop().done
            and self.resume().done
            and self.stage("export", [*command, "export", str(self.run), "--output", str(exported)]).done
            and self.stage("evaluate", [*command, *evaluate]).done
        )

    def launch(self) -> list[str]:
        """The training run's command."""
        keys = {
            "train.steps": STEPS,
            "train.save_every": 1,
            "train.eval_every": STEPS + 1,
            "train.games_per_step": GAMES_PER_STEP,
            "data.train": self.folder / "games.jsonl",
            "data.eval": self.folder / "games_eval.jsonl",
            "data.num_train": STEPS * GAMES_PER_STEP,
            "data.num_eval": self.games,
        }
        changes = [f"--set={key}={value}" for key, value in keys.items()]
        return ["bash", str(SCRIPT), *changes, "--skip-eval-before-train", *self.words]

    def train_and_stop(self) -> Stage:
        """Interrupted, as by Ctrl-C, once the first checkpoint is written."""
        saved = self.run / LAST_WHOLE
        stage = self.stage("train", self.launch(), stop_when=saved.exists)
        stopped, stage.done = stage.done, saved.exists()
        if stage.done:
            stage.note = "stopped at its first checkpoint" if stopped else "ended before it could be stopped"
        return stage

    def resume(self) -> Stage:
        """Runs the same command again and checks that it resumes instead of starting over."""
        first = last_whole(self.run)
        stage = self.stage("resume", self.launch())
        if stage.done:
            last, began = last_whole(self.run), self._first_logged_step("resume.log")
            stage.done = last == STEPS - 1 and (began is None or first is None or began > first)
            wanted = f"it should have gone on after step {first} to step {STEPS - 1}; it began at {began} and ended at {last}"
            stage.note = f"went on after step {first}" if stage.done else wanted
        return stage

    def stage(self, name: str, command: Sequence[str], stop_when: Callable[[], bool] | None = None) -> Stage:
        """Runs a command with its output in a log. Its stage is done after a good end or a planned stop."""
        say(f"{name}: {' '.join(command)}")
        stage, log = Stage(name), self.folder / f"{name}.log"
        environment = with_packages([PACKAGES]) | {"SAVE_DIR": str(self.run)}
        self.stages.append(stage)
        began, stopped = time.monotonic(), False
        with (
            log.open("wb") as output,
            self._memory_watched(),
            running(command, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
        ):
            while process.poll() is None and time.monotonic() - began < self.limit:
                if not stopped and stop_when is not None and stop_when():
                    stopped = True
                    process.send_signal(signal.SIGINT)
                time.sleep(0.2)
        stage.seconds = time.monotonic() - began
        stage.done = stopped or process.returncode == 0
        if not stage.done:
            stage.note = f"exit code {process.returncode}; {log}"
            print(last_lines(log), file=sys.stderr)
        return stage

    @contextmanager
    def _memory_watched(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(2.0):
                self.memory = max([self.memory, *(gpu.used for gpu in find_gpus())])

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()

    def _first_logged_step(self, log: str) -> int | None:
        text = (self.folder / log).read_text(encoding="utf-8", errors="replace")
        match = re.search(r"\bperf (\d+): \{", text)
        return int(match[1]) if match else None

    def table(self) -> str:
        """Returns the measurements as a Markdown table."""
        gpus = find_gpus()
        machine = f"{len(gpus)} × {gpus[0].name}" if gpus else "no GPU"
        rows = [("machine", machine), ("GPU memory in use, at most", _gib(self.memory))]
        for stage in self.stages:
            state = "done" if stage.done else "FAILED"
            rows.append((stage.name, f"{state} in {stage.seconds:.0f} s" + (f" ({stage.note})" if stage.note else "")))
        measured = read_metrics([self.folder / "train.log", self.folder / "resume.log"])
        for what, name, unit, decimals in _TABLE:
            values = measured.get(name, [])
            shown = f"{fmean(values):.{decimals}f} {unit}" if values else NOTHING
            rows.append((what, shown + (f" (`{name}`, {len(values)} steps)" if values else f" (`{name}`)")))
        rows += self._games()
        return "\n".join(["| | |", "|---|---|", *(f"| {what} | {found} |" for what, found in rows)])

    def _games(self) -> Iterator[tuple[str, str]]:
        train = read_run(self.run).log.dir if (self.run / "config.yaml").exists() else self.run
        played = list(read_log(train)) if any(train.glob("*.jsonl")) else []
        evaluation = self.folder / "evaluation"
        held_out = (
            [d for dialogues in read_results([evaluation]).values() for d in dialogues] if evaluation.is_dir() else []
        )
        for what, dialogues in (("training", played), ("held-out", held_out)):
            if dialogues:
                mean = batch_metrics(dialogues)
                shares = ", ".join(
                    f"{name} {mean[name]:.2f}" for name in ("reward", "questions", "failed") if name in mean
                )
                yield f"{what} dialogues", f"{len(dialogues)}: {shares}"
            else:
                yield f"{what} dialogues", NOTHING


def read_metrics(logs: Sequence[Path]) -> Mapping[str, list[float]]:
    """Returns metric -> values that slime printed, in order.

    The first step compiles and warms up, so times leave it out if there are others.
    """
    times: dict[str, list[float]] = {}
    for log in logs:
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        for line in _METRICS.finditer(text):
            for name, value in _METRIC.findall(line[1]):
                times.setdefault(name, []).append(float(value))
    return {
        name: values[1:] if name.startswith("perf/") and len(values) > 1 else values for name, values in times.items()
    }


def _gib(size: float) -> str:
    return f"{size / GIB:.0f} GiB" if size else NOTHING


def say(text: str) -> None:
    """A line for the user."""
    print(f"smoke: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of scripts/smoke_cluster.sh. Returns 0 if every stage did what it should."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0].startswith("-"):
        print((__doc__ or "").strip())
        return 0 if words and words[0] in ("-h", "--help") else 2
    environment = os.environ
    games = environment.get("GAMES") or "50"
    if not re.fullmatch("[0-9]{1,9}", games) or not int(games):
        say(f"GAMES is {games!r}; it must be a whole number of at least 1.")
        return 1
    test = Smoke(
        Path(words[0]).absolute(),
        words[1:],
        engine=environment.get("ENGINE") or "sglang",
        games=int(games),
    )
    try:
        with signals_end_the_run():
            done = test.all()
    except SlimError as error:
        say(str(error))
        return 1
    table = test.table()
    (test.folder / "smoke.md").write_text(f"{table}\n", encoding="utf-8")
    print(table)
    return 0 if done else 1


if __name__ == "__main__":
    raise SystemExit(main())
