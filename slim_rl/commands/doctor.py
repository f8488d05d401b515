"""`slim-rl doctor`: checks a machine and a config before a run.

To add a check, write a function of the config and list it in `EXAMINATIONS` of `backends/checks.py`, or of a backend's `doctor.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.checks import EXAMINATIONS, Check, examine
from slim_rl.commands.options import Backend, Overrides
from slim_rl.commands.screen import printable, working
from slim_rl.config import load_config, parse_config
from slim_rl.errors import SlimError
from slim_rl.lab.incentives import launch_check

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


def command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="config of the run; the defaults if missing", show_default=False),
    ] = None,
    backend: Backend = None,
    overrides: Overrides = None,
) -> None:
    """Check a machine and a config before an expensive run."""
    with working("checking"):
        checks = run_doctor(config, backend, overrides=overrides or ())
    print_table(checks)
    raise typer.Exit(int(any(check.status == "fail" for check in checks)))  # warnings do not count


def run_doctor(path: Path | None, backend: str | None = None, *, overrides: Sequence[str] = ()) -> list[Check]:
    """Returns the checks of this machine for a config (None: the defaults), in table order. Never raises."""
    changes = [*overrides, *([f"train.backend={backend}"] if backend else [])]
    try:
        config = load_config(path, changes) if path else parse_config({}, changes)
    except SlimError as error:
        return [Check("config", "fail", str(error))]
    backend = config.train.backend
    launch_check.register()
    summary = f"{path or 'defaults'}: {config.arm_name} partner, {config.environment}, backend {backend}"
    further = {} if backend == "trl" else import_module(f"slim_rl.backends.{backend}.doctor").EXAMINATIONS
    return [Check("config", "pass", summary), *examine(config, EXAMINATIONS | further)]


def print_table(checks: Sequence[Check]) -> None:
    """Prints one line per check, each fix below its first check, and the tally."""
    fixes: set[str] = set()
    for check in checks:
        typer.secho(check.status, fg=COLOURS[check.status], nl=False)
        typer.echo(f"  {check.name:<18} {printable(check.finding)}")
        if check.fix:
            fix = "as above" if check.fix in fixes else printable(check.fix)
            typer.secho(f"{'':<25}→ {fix}", dim=True)
            fixes.add(check.fix)
    typer.echo(", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in COLOURS))
