"""`slim-rl doctor`: everything a run needs, looked at before it costs anything. One table of pass, warn and fail, with the fix.

A new check is a function of the run's config in the list here, or in that of a backend's own `doctor.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends import machine
from slim_rl.backends.checks import Check, Examination, check_packages, examine, failed
from slim_rl.commands.options import Overrides
from slim_rl.commands.screen import printable, working
from slim_rl.config import load_config, parse_config
from slim_rl.errors import SlimError

GENERAL: list[tuple[str, Examination]] = [
    ("packages", check_packages),
    ("tokenizer", machine.check_tokenizer),
    ("games", machine.check_data),
    ("partner", machine.check_partner),
    ("W&B", machine.check_tracker),
    ("GPUs", machine.check_gpus),
    ("disk", machine.check_disk),
]


def command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="the run's config; the defaults without", show_default=False),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="trl, slime or verl; the config's by default")] = None,
    overrides: Overrides = None,
) -> None:
    """Check a machine and a config before an expensive run."""
    with working("checking"):
        checks = run_doctor(config, backend, overrides=overrides or ())
    print_table(checks)
    raise typer.Exit(exit_code(checks))


def run_doctor(config_path: Path | None, backend: str | None = None, *, overrides: Sequence[str] = ()) -> list[Check]:
    """The checks of this machine for a run, in the order of the table. Nothing is raised for what is wrong with it or the config.

    `config_path` None: the defaults; `backend` None: the config's own.
    """
    changes = [*overrides, *([f"train.backend={backend}"] if backend else [])]
    try:
        config = load_config(config_path, changes) if config_path else parse_config({}, changes)
    except SlimError as error:
        return [failed("config", error, "Nothing else can be checked without a config.")]
    backend = config.train.backend
    found = f"{config_path or 'defaults'}: {config.arm_name} partner, {config.environment}, backend {backend}"
    machine.go_offline_without_hub(config.policy.model)
    own = [] if backend == "trl" else import_module(f"slim_rl.backends.{backend}.doctor").EXAMINATIONS
    return [Check("config", "pass", found), *examine(config, GENERAL + own)]


def exit_code(checks: Sequence[Check]) -> int:
    """0 if nothing failed, 1 otherwise; warnings do not count."""
    return int(any(check.status == "fail" for check in checks))


def print_table(checks: Sequence[Check]) -> None:
    """One line a check, with the fix under it, then the tally; on stdout."""
    colour = {"pass": "green", "warn": "yellow", "fail": "red"}
    for check in checks:
        typer.secho(check.status, fg=colour[check.status], nl=False)
        typer.echo(f"  {check.name:<18} {printable(check.found)}")
        if check.fix:
            typer.secho(f"{'':<25}→ {printable(check.fix)}", dim=True)
    typer.echo(", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in colour))
