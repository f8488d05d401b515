"""An experiment: every arm with every seed, each a separate run, all on the same budget and held-out games.

Arms are those of `config.arms`, or of a file: names, and the keys that each changes. In a value `{log:NAME}` stands for the log
folder of arm NAME's run with the same seed; a run that names one waits for it. Runs are separate processes, `jobs` at a time, one
thread each. A run that is complete is not run again, and one that was interrupted resumes. What the backend cannot do in some arm
is said before any runs; on a machine that cannot run the backend, only the plan is printed.
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
from slim_rl.commands.options import Backend, ConfigFile, Overrides, game_named
from slim_rl.commands.screen import printable
from slim_rl.config import load_config, read_yaml
from slim_rl.errors import ConfigError, SlimError, did_you_mean
from slim_rl.processes import interruptible, python_module, running, signals_end_the_run

MOST_SEEDS = 1000
LOOK_SECONDS = 0.1  # between two looks at what runs
STOP_SECONDS = 120.0  # for a run to end, which may have a cluster to end


def command(
    config: ConfigFile,
    arm: Annotated[list[str] | None, typer.Option(help="arms to run (repeatable); all by default")] = None,
    arms: Annotated[
        Path | None,
        typer.Option(help="YAML file of an experiment, or of arms (names, and the keys that each changes)"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="seeds, such as 0,1,2 or 0-2")] = "0,1,2",
    jobs: Annotated[int, typer.Option(min=1, help="runs in parallel")] = 1,
    overrides: Overrides = None,
    backend: Backend = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
    extra: Annotated[list[str] | None, typer.Argument(help="after --: the trainer's own flags, for every run")] = None,
) -> None:
    """Run an experiment: every arm with every seed.

    Complete runs are skipped, interrupted ones resume; at the end it prints what each arm learned.
    """
    changes = [*(overrides or ()), *([f"train.backend={backend}"] if backend else [])]
    runs = plan(config, arm or (), numbered(seeds), changes, arms, extra or ())
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
    with interruptible("the same command goes on: complete runs are not run again, and the others resume."):
        run_all(config, runs, jobs, base.output_dir)
    for line in conclusion(config, runs, base.name):
        typer.echo(printable(line))


@dataclass(frozen=True, slots=True)
class Run:
    """One arm with one seed, and the command that trains it. `needs`: names of runs whose log it reads; `extra`: words of the
    trainer's own.
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


def numbered(seeds: str) -> list[int]:
    """The numbers of a list such as "0,1,5-8". Raises ConfigError if it is none."""
    found: list[int] = []
    for part in seeds.split(","):
        if not (ends := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)):
            raise ConfigError(
                f"--seeds takes whole numbers and ranges with commas between them, such as 0,1,5-8, not '{seeds}'."
            )
        named = range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        if len(found) + len(named) > MOST_SEEDS:
            raise ConfigError(f"--seeds {seeds} names more than {MOST_SEEDS:,} seeds, each a run per arm; name fewer.")
        found += named
    if not found:
        raise ConfigError(f"--seeds {seeds} has an empty range: a range begins with its smallest number.")
    return found


def plan(
    config: Path,
    arms: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    file: Path | None = None,
    extra: Sequence[str] = (),
) -> list[Run]:
    """The runs of an experiment, seeds first, so that every arm has a seed before any has two.

    Args:
        arms: names of those to run; all if there are none.
        file: where they are, if not in the config.
        extra: words of the trainer's own, for every run.

    Raises:
        ConfigError: an arm is not there, or is wrong, or is one that the backend cannot play.
    """
    settings = load_config(config, overrides)
    known = settings.arms if file is None else _read(file)

    def overridden(arm: str, seed: int) -> tuple[str, ...]:
        if arm not in known:
            raise ConfigError(
                f"{file or config} has no arm {arm}; its arms are {', '.join(known)}{did_you_mean(arm, known) or '.'}"
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
            run_config = load_config(config, changes)  # a wrong key in an arm is found before anything runs
            backends.check(run_config)
            needs = tuple(f"{settings.name}-{other}-s{seed}" for other in needed)
            runs.append(Run(run_config.name, arm, seed, changes, needs, tuple(extra)))
    return in_order(runs)


def run_all(config: Path, runs: Sequence[Run], jobs: int, log_dir: Path) -> None:
    """Runs them all, each after those in the list that it needs. A signal that ends this ends what runs. Raises SlimError naming those
    that failed, once the others are through."""
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
                        own = all_live.enter_context(ExitStack())
                        with (log_dir / f"{run.name}.out").open("ab") as out:
                            child = running(run.command(config), STOP_SECONDS, stdout=out, stderr=subprocess.STDOUT)
                            live[run.name] = own.enter_context(child), own
                for name, (process, own) in list(live.items()):
                    if (code := process.poll()) is not None:
                        own.close()
                        del live[name]
                        codes[name] = code
                        bar.update()
                if live:
                    time.sleep(LOOK_SECONDS)
        except BaseException:
            for process, _ in live.values():  # all at once; `running` then waits for each
                process.terminate()
            raise
    failed = [run.name for run in runs if codes[run.name]]
    if failed:
        raise SlimError(
            f"These runs failed: {', '.join(failed)}; see {log_dir}/<run>.out, then run the same command again."
        )


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Each after those that it needs, and else as they stand. Raises ConfigError where runs need one another."""
    placed: list[Run] = []
    waiting = list(runs)
    while waiting:
        names = {run.name for run in waiting}
        ready = next((run for run in waiting if names.isdisjoint(run.needs)), None)
        if ready is None:
            arms = ", ".join(dict.fromkeys(run.arm for run in waiting))
            raise ConfigError(f"Of the arms {arms} each waits for the log of another: take {{log:NAME}} out of one.")
        waiting.remove(ready)
        placed.append(ready)
    return placed


def conclusion(config: Path, runs: Sequence[Run], name: str) -> list[str]:
    """What each arm's held-out games say, before and after training, over its seeds; and where to read more.

    Args:
        name: of the experiment.
    """
    settings = [load_config(config, run.overrides) for run in runs]
    folders = [backends.log_folder(each) for each in settings]
    game = "".join(dict.fromkeys(game_named(each.environment) for each in settings))
    more = f"All of it, with the arms' differences: slim-rl analyze {' '.join(map(str, folders))} --output plots/{name}{game}"
    logs = [
        log for folder in folders for log in (sorted(folder.glob("eval*.jsonl")) or sorted(folder.glob("verl-*.jsonl")))
    ]
    if not logs:
        return ["There are no held-out games to judge the arms by (train.eval_games is 0).", more]
    from slim_rl.analysis.load import load
    from slim_rl.analysis.plays import by_arm, of_frame, verdicts

    found = list(verdicts(by_arm(of_frame(load(logs).frame), ["questions", "reward"])))
    said = [f"{arm['arm']}: {' '.join(arm['sentences'])}" for arm in found]
    return [*said, more] if said else ["No held-out games were played both before and after training.", more]


def _out_of_reach(file: Path | None, runs: Sequence[Run]) -> list[str]:
    """Returns what contrasts of the experiment in `file`, if it is one, these runs cannot show."""
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
    """The arms of a file. Raises ConfigError if it cannot be used."""
    try:
        data = read_yaml(file)
        if isinstance(data, dict) and isinstance(data.get("title"), str):  # an experiment
            data = data.get("arms")
        return TypeAdapter(dict[str, dict[str, Any]]).validate_python(data)
    except ValidationError as error:
        raise ConfigError(
            f"{file} is not a YAML file of arms: it needs the name of each arm, and below it the keys that the arm changes."
        ) from error
