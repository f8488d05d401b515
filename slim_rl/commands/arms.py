"""An experiment: every arm of `config.arms` with every seed, each a separate run, all on the same budget and held-out games.

Runs are separate processes, `jobs` at a time, one thread each. A run that is complete is not run again, and one that was
interrupted resumes.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.config import load_config
from slim_rl.errors import ConfigError, SlimError


def command(
    config: ConfigFile,
    arm: Annotated[list[str] | None, typer.Option(help="arms to run (repeatable); all by default")] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,2",
    jobs: Annotated[int, typer.Option(min=1, help="runs side by side")] = 1,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
) -> None:
    """Run an experiment: every arm with every seed.

    Complete runs are skipped, interrupted ones resume.
    """
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds takes whole numbers with commas between them, not '{seeds}'.") from error
    runs = plan(config, arm or (), numbers, overrides or ())
    for run in runs:
        typer.echo(f"{run.name}: {shlex.join(run.command(config))}")
    if not dry_run:
        run_all(config, runs, jobs, load_config(config, overrides or ()).output_dir)


@dataclass(frozen=True, slots=True)
class Run:
    """One arm with one seed, and the command that trains it."""

    name: str
    arm: str
    seed: int
    overrides: tuple[str, ...]

    def command(self, config: Path) -> list[str]:
        options = [option for override in self.overrides for option in ("--set", override)]
        return [sys.executable, "-m", "slim_rl.cli", "train", str(config), *options]


def plan(config: Path, arms: Sequence[str], seeds: Sequence[int], overrides: Sequence[str] = ()) -> list[Run]:
    """The runs of an experiment, seeds first, so that every arm has a seed before any has two.

    Raises ConfigError if an arm is not in the config.
    """
    settings = load_config(config, overrides)
    unknown = [arm for arm in arms if arm not in settings.arms]
    if unknown:
        raise ConfigError(f"{config} has no arm {', '.join(unknown)}; its arms are {', '.join(settings.arms)}.")
    runs = []
    for seed in seeds:
        for arm in arms or settings.arms:
            name = f"{settings.name}-{arm}-s{seed}"
            changes = [f"{key}={json.dumps(value)}" for key, value in settings.arms[arm].items()]
            runs.append(Run(name, arm, seed, (*overrides, *changes, f"name={name}", f"arm={arm}", f"seed={seed}")))
    for run in runs:
        load_config(config, run.overrides)  # a wrong key in an arm is found before anything runs
    return runs


def run_all(config: Path, runs: Sequence[Run], jobs: int, log_dir: Path) -> None:
    """Runs them all. Raises SlimError naming those that failed, once the others are through."""
    log_dir.mkdir(parents=True, exist_ok=True)

    def run(item: Run) -> int:
        with (log_dir / f"{item.name}.out").open("ab") as out:
            return subprocess.run(item.command(config), stdout=out, stderr=subprocess.STDOUT, check=False).returncode

    with ThreadPoolExecutor(jobs) as pool:
        codes = list(tqdm(pool.map(run, runs), total=len(runs), desc="runs", unit="run", disable=None))
    failed = [item.name for item, code in zip(runs, codes, strict=True) if code]
    if failed:
        raise SlimError(
            f"These runs failed: {', '.join(failed)}; see {log_dir}/<run>.out, then run the same command again."
        )
