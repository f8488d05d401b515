"""`slim-rl doctor`: everything a run needs, looked at before it costs anything. One table of pass, warn and fail with the mend.

A new check is a function of a `Patient` in one of the lists here; a backend's own checks live in a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slim_rl.backends.checks import Check, Examination, Patient, examine
from slim_rl.backends.machine import check_data, check_disk, check_gpus, check_packages, check_partner, check_tokenizer
from slim_rl.config import Config, load_config
from slim_rl.errors import SlimError

__all__ = ["Check", "Patient", "examine", "exit_code", "print_table", "run_doctor"]

GENERAL: list[tuple[str, Examination]] = [
    ("packages", check_packages),
    ("tokenizer", check_tokenizer),
    ("games", check_data),
    ("partner", check_partner),
    ("GPUs", check_gpus),
    ("disk", check_disk),
]


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
    try:
        config = load_config(config_path, overrides) if config_path else Config()
    except SlimError as error:
        return [Check("config", "fail", str(error), "Nothing else can be checked without a config.")]
    name = backend or config.train.backend
    found = f"{config_path or 'defaults'}: {config.arm_name} partner, {config.game.n}×{config.game.n}, backend {name}"
    checks = [Check("config", "pass", found)]
    patient = Patient(config, name, gpus, call_partner)
    return checks + examine(patient, GENERAL) + examine(patient, _backend_examinations(name))


def _backend_examinations(backend: str) -> list[tuple[str, Examination]]:
    if backend == "slime":
        from slim_rl.backends.slime.doctor import EXAMINATIONS

        return EXAMINATIONS
    if backend == "verl":
        return [("verl", _check_verl)]
    return []


def _check_verl(patient: Patient) -> Sequence[Check]:
    from slim_rl.backends.verl.doctor import checks

    return list(checks(patient.config))


def exit_code(checks: Sequence[Check]) -> int:
    """0 if nothing failed, 1 otherwise; warnings do not count."""
    return int(any(check.status == "fail" for check in checks))


def print_table(checks: Sequence[Check]) -> None:
    """One line a check, with the mend under it, then the tally; on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colour = {"pass": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        # Text, not markup: what was found may hold square brackets
        found = Text(check.found)
        if check.mend:
            found.append(f"\n→ {check.mend}", "dim")
        table.add_row(Text(check.status, colour[check.status]), Text(check.name), found)
    console = Console()
    if not console.is_terminal:
        console.width = 120
    console.print(table)
    console.print(", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in colour))
