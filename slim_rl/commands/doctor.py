"""`slim-rl doctor`: everything a run needs, looked at before it costs anything. One table of pass, warn and fail, with the fix.

A new check is a function of a `Target` in one of the lists here; a backend's own checks live in its `doctor.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.checks import Check, Examination, Target, examine
from slim_rl.backends.machine import (
    check_data,
    check_disk,
    check_gpus,
    check_packages,
    check_partner,
    check_tokenizer,
    check_tracker,
    go_offline_without_hub,
)
from slim_rl.commands.options import Overrides
from slim_rl.commands.screen import printable, working
from slim_rl.config import load_config, parse_config
from slim_rl.errors import SlimError

GENERAL: list[tuple[str, Examination]] = [
    ("packages", check_packages),
    ("tokenizer", check_tokenizer),
    ("games", check_data),
    ("partner", check_partner),
    ("W&B", check_tracker),
    ("GPUs", check_gpus),
    ("disk", check_disk),
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


def run_doctor(
    config_path: Path | None,
    backend: str | None = None,
    *,
    overrides: Sequence[str] = (),
    gpus: int | None = None,
    call_partner: bool = True,
) -> list[Check]:
    """Examines this machine for a run.

    Args:
        config_path: the run's config; None for the defaults.
        backend: "trl", "slime" or "verl"; None for the config's own.
        overrides: changes to the config, such as ``policy.model=PATH``.
        gpus: GPUs of a node that the run will use; None for all that are there.
        call_partner: make one real, cheap call to the partner's endpoint.

    Returns:
        The checks in the order of the table. Nothing is raised for what is wrong with the machine or the config.
    """
    changes = [*overrides, *([f"train.backend={backend}"] if backend else [])]
    try:
        config = load_config(config_path, changes) if config_path else parse_config({}, changes)
    except SlimError as error:
        return [Check("config", "fail", str(error), "Nothing else can be checked without a config.")]
    target = Target(config, gpus, call_partner)
    found = f"{config_path or 'defaults'}: {config.arm_name} partner, {config.environment}, backend {target.backend}"
    go_offline_without_hub(config.policy.model)
    return [Check("config", "pass", found), *examine(target, GENERAL + _backend_examinations(target.backend))]


def _backend_examinations(backend: str) -> list[tuple[str, Examination]]:
    if backend == "slime":
        from slim_rl.backends.slime.doctor import EXAMINATIONS

        return EXAMINATIONS
    if backend == "verl":
        from slim_rl.backends.verl import doctor

        return [("verl", lambda target: list(doctor.checks(target.config)))]
    return []


def exit_code(checks: Sequence[Check]) -> int:
    """0 if nothing failed, 1 otherwise; warnings do not count."""
    return int(any(check.status == "fail" for check in checks))


def print_table(checks: Sequence[Check]) -> None:
    """One line a check, with the fix under it, then the tally; on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colour = {"pass": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        found = Text(printable(check.found))  # Text, not markup: what was found may hold square brackets
        if check.fix:
            found.append(f"\n→ {printable(check.fix)}", "dim")
        table.add_row(Text(check.status, colour[check.status]), Text(check.name), found)
    console = Console()
    if not console.is_terminal:
        console.width = 120
    console.print(table)
    console.print(", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in colour))
