"""`slim-rl lab arms`: trains every arm with every seed, on the same budget and held-out games.

Arms come from `config.arms` or a file: names, and the keys that each changes. In a value, `{log:NAME}` stands for the log folder of
arm NAME's run with the same seed; a run that names one waits for it. Runs are processes with one thread each, `jobs` at a time.
Complete runs are skipped, interrupted ones resume. Arms that the backend cannot train are rejected before any run; on a machine that
cannot run the backend, only the plan is printed.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

from slim_rl import backends
from slim_rl.commands.options import Backend, ConfigFile, Overrides, game_option
from slim_rl.commands.screen import printable
from slim_rl.config import load_config, read_yaml
from slim_rl.errors import ConfigError, SlimError, did_you_mean
from slim_rl.processes import interruptible, python_module, running, signals_end_the_run

MOST_SEEDS = 1000
POLL_SECONDS = 0.1  # between two polls of the processes
STOP_SECONDS = 120.0  # for a run to end, which may have to shut down a cluster


def command(
    config: ConfigFile,
    arm: Annotated[list[str] | None, typer.Option(help="arm to run (repeatable); all by default")] = None,
    arms: Annotated[
        Path | None,
        typer.Option(help="YAML file of an experiment, or of arms (names, and the keys that each changes)"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="seeds, such as 0,1,2 or 0-2")] = "0,1,2",
    jobs: Annotated[int, typer.Option(min=1, help="runs in parallel")] = 1,
    overrides: Overrides = None,
    backend: Backend = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
    extra: Annotated[list[str] | None, typer.Argument(help="trainer's flags for every run, after --")] = None,
) -> None:
    """Train every arm with every seed.

    Complete runs are skipped, interrupted ones resume. Prints each arm's results at the end.
    """
    changes = [*(overrides or ()), *([f"train.backend={backend}"] if backend else [])]
    runs = plan(config, arm or (), parse_seeds(seeds), changes, arms, extra or ())
    for run in runs:
        typer.echo(f"{run.name}: {shlex.join(run.command(config))}")
    base = load_config(config, changes)
    for sentence in _out_of_reach(arms, runs):
        typer.echo(f"slim-rl: {sentence}", err=True)
    if dry_run:
        return
    if lacks := backends.missing(base, extra or ()):
        backends.say(f"This is the plan, and nothing is run: {lacks}")
        return
    with interruptible("the same command continues: complete runs are skipped, and the others resume."):
        run_all(config, runs, jobs, base.output_dir)
    for line in conclusion(config, runs, base.name):
        typer.echo(printable(line))


@dataclass(frozen=True, slots=True)
class Run:
    """Run of an arm with a seed, and the command that trains it.

    Attributes:
        needs: names of the runs whose logs it reads.
        extra: trainer's arguments.
    """

    name: str
    arm: str
    seed: int
    overrides: tuple[str, ...]
    needs: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def command(self, config: Path) -> list[str]:
        options = [option for override in self.overrides for option in ("--set", override)]
        return [
            *python_module("slim_rl.cli"),
            "train",
            str(config),
            *options,
            *(("--", *self.extra) if self.extra else ()),
        ]


def parse_seeds(seeds: str) -> list[int]:
    """Returns the numbers of a list such as "0,1,5-8". Raises ConfigError for any other text."""
    numbers: list[int] = []
    for part in seeds.split(","):
        if not (ends := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)):
            raise ConfigError(
                f"--seeds {seeds} is not a list of whole numbers and ranges. Write, for example, 0,1,5-8."
            )
        part_numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        if len(numbers) + len(part_numbers) > MOST_SEEDS:
            raise ConfigError(
                f"--seeds {seeds} names more than {MOST_SEEDS:,} seeds, one run per arm each. Name fewer."
            )
        numbers += part_numbers
    if not numbers:
        raise ConfigError(f"--seeds {seeds} has an empty range. Begin a range with its smallest number.")
    return numbers


def plan(
    config: Path,
    arms: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    file: Path | None = None,
    extra: Sequence[str] = (),
) -> list[Run]:
    """Returns the runs of an experiment, ordered by seed, so that every arm has one seed before any has two.

    Args:
        arms: names of the arms to run; all if empty.
        file: file of the arms; None: the config.
        extra: trainer's arguments for every run.

    Raises:
        ConfigError: an arm is unknown or invalid, or the backend cannot train it.
    """
    settings = load_config(config, overrides)
    known = settings.arms if file is None else _read(file)

    def overridden(arm: str, seed: int) -> tuple[str, ...]:
        if arm not in known:
            raise ConfigError(
                f"{file or config} has no arm {arm}. Choose one of {', '.join(known)}{did_you_mean(arm, known) or '.'}"
            )
        changes = [f"{key}={json.dumps(value)}" for key, value in known[arm].items()]
        return (*overrides, *changes, f"name={settings.name}-{arm}-s{seed}", f"arm={arm}", f"seed={seed}")

    def log_folder(arm: re.Match[str], seed: int) -> str:
        return str(backends.log_folder(load_config(config, overridden(arm[1], seed))))

    runs = []
    for seed in dict.fromkeys(seeds):
        for arm in dict.fromkeys(arms or known):
            changes = overridden(arm, seed)
            needed = [other for change in changes for other in _LOG.findall(change)]
            changes = tuple(_LOG.sub(partial(log_folder, seed=seed), change) for change in changes)
            run_config = load_config(config, changes)  # raises for an invalid key, before anything runs
            backends.check(run_config)
            needs = tuple(f"{settings.name}-{other}-s{seed}" for other in needed)
            runs.append(Run(run_config.name, arm, seed, changes, needs, tuple(extra)))
    return in_order(runs)


def run_all(config: Path, runs: Sequence[Run], jobs: int, log_dir: Path) -> None:
    """Runs all runs, each after those it needs; a signal that ends this process ends them too.

    Raises:
        SlimError: some runs failed; raised once the others have ended.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    waiting, codes = list(runs), dict[str, int]()
    live: dict[str, tuple[subprocess.Popen[bytes], ExitStack]] = {}
    with (
        signals_end_the_run(),
        ExitStack() as all_live,
        tqdm(total=len(runs), desc="runs", unit="run", disable=None) as bar,
    ):
        try:
            while waiting or live:
                before = {run.name for run in waiting} | live.keys()
                for run in [run for run in waiting if before.isdisjoint(run.needs)]:
                    if any(codes.get(name) for name in run.needs):
                        waiting.remove(run)
                        codes[run.name] = 1
                        bar.update()
                    elif len(live) < jobs:
                        waiting.remove(run)
                        stack = all_live.enter_context(ExitStack())
                        with (log_dir / f"{run.name}.out").open("ab") as out:
                            child = running(run.command(config), STOP_SECONDS, stdout=out, stderr=subprocess.STDOUT)
                            live[run.name] = stack.enter_context(child), stack
                for name, (process, stack) in list(live.items()):
                    if (code := process.poll()) is not None:
                        stack.close()
                        del live[name]
                        codes[name] = code
                        bar.update()
                if live:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            for process, _ in live.values():  # terminate all first; `running` then waits for each
                process.terminate()
            raise
    failed = [run.name for run in runs if codes[run.name]]
    if failed:
        raise SlimError(
            f"These runs failed: {', '.join(failed)}. See {log_dir}/<run>.out, then run the same command again."
        )


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs, each after those it needs, otherwise in the same order. Raises ConfigError for a cycle."""
    placed: list[Run] = []
    waiting = list(runs)
    while waiting:
        names = {run.name for run in waiting}
        ready = next((run for run in waiting if names.isdisjoint(run.needs)), None)
        if ready is None:
            arms = ", ".join(dict.fromkeys(run.arm for run in waiting))
            raise ConfigError(f"The arms {arms} wait for each other's logs. Remove {{log:NAME}} from one.")
        waiting.remove(ready)
        placed.append(ready)
    return placed


def conclusion(config: Path, runs: Sequence[Run], name: str) -> list[str]:
    """Returns sentences on each arm's held-out games before and after training, over its seeds.

    Args:
        name: name of the experiment.
    """
    settings = [load_config(config, run.overrides) for run in runs]
    folders = [backends.log_folder(each) for each in settings]
    game = "".join(dict.fromkeys(game_option(each.environment) for each in settings))
    more = f"Full report, with the differences between arms: slim-rl analyze {' '.join(map(str, folders))} --output plots/{name}{game}"
    logs = [
        log for folder in folders for log in (sorted(folder.glob("eval*.jsonl")) or sorted(folder.glob("verl-*.jsonl")))
    ]
    if not logs:
        return ["No held-out games were played (train.eval_games is 0), so the arms cannot be compared.", more]
    from slim_rl.analysis.changes import by_arm, verdicts
    from slim_rl.analysis.load import load
    from slim_rl.analysis.plays import of_frame

    results = verdicts(by_arm(of_frame(load(logs).frame), ["questions", "reward"]))
    sentences = [f"{arm['arm']}: {' '.join(arm['sentences'])}" for arm in results]
    return [*sentences, more] if sentences else ["No held-out games were played both before and after training.", more]


def _out_of_reach(file: Path | None, runs: Sequence[Run]) -> list[str]:
    """Returns sentences on the contrasts of the experiment in `file` that cannot reach significance with these runs."""
    data = read_yaml(file) if file is not None else None
    if file is None or not isinstance(data, dict) or not isinstance(data.get("title"), str):
        return []
    from slim_rl.lab.experiment.contrasts import load_manifest
    from slim_rl.lab.experiment.reach import out_of_reach

    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.arm, set()).add(run.seed)
    return list(out_of_reach(load_manifest(file)[1], seeds))


_LOG = re.compile(r"\{log:(\w+)\}")


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """Reads the arms of a file. Raises ConfigError if it has none."""
    try:
        data = read_yaml(file)
        if isinstance(data, dict) and isinstance(data.get("title"), str):  # an experiment
            data = data.get("arms")
        return TypeAdapter(dict[str, dict[str, Any]]).validate_python(data)
    except ValidationError as error:
        raise ConfigError(
            f"{file} is not a YAML file of arms. Write the name of each arm, and below it the keys that the arm changes."
        ) from error
