"""`slim-rl doctor`: everything a run needs, looked at before it costs anything. A new check is a function of the run's config
among the `EXAMINATIONS` of `backends/checks.py`, or among those of a backend's own `doctor.py`.
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
from slim_rl.lab.incentives import told

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


def command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="the run's config; without it, the defaults", show_default=False),
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
    """The checks of this machine for a config (None: the defaults), in the order of the table. What is wrong is never raised."""
    changes = [*overrides, *([f"train.backend={backend}"] if backend else [])]
    try:
        config = load_config(path, changes) if path else parse_config({}, changes)
    except SlimError as error:
        return [Check("config", "fail", str(error))]
    backend = config.train.backend
    told.register()
    found = f"{path or 'defaults'}: {config.arm_name} partner, {config.environment}, backend {backend}"
    own = {} if backend == "trl" else import_module(f"slim_rl.backends.{backend}.doctor").EXAMINATIONS
    return [Check("config", "pass", found), *examine(config, EXAMINATIONS | own)]


def print_table(checks: Sequence[Check]) -> None:
    """One line a check, with the fix under it, the first time that it is needed, then the tally; on stdout."""
    said: set[str] = set()
    for check in checks:
        typer.secho(check.status, fg=COLOURS[check.status], nl=False)
        typer.echo(f"  {check.name:<18} {printable(check.found)}")
        if check.fix:
            fix = "as above" if check.fix in said else printable(check.fix)
            typer.secho(f"{'':<25}→ {fix}", dim=True)
            said.add(check.fix)
    typer.echo(", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in COLOURS))
