"""`slim-rl lab init`: copies slim_rl's configs, examples and scripts, or the files of a new experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl import bundled
from slim_rl.errors import ConfigError

EXPERIMENT = "experiment"


def command(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER | experiment [FOLDER]",
            help="folder to copy configs, examples and scripts to; or the word experiment, and a folder for its files. Default: the "
            "working folder. Write ./experiment for a folder of that name",
            show_default=False,
        ),
    ] = Path(),
    folder: Annotated[Path | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Copy configs, examples and scripts into a folder, or write the files of a new preregistered experiment."""
    if str(what) == EXPERIMENT:
        _experiment(folder or Path())
        return
    if folder is not None:
        raise ConfigError(
            f"slim-rl lab init has two arguments, {what} and {folder}. Name one folder, or {EXPERIMENT} and a folder."
        )
    for name in bundled.COPIED:
        typer.echo(f"Copied {len(bundled.copy(name, what / name))} files to {what / name}/")


def _experiment(folder: Path) -> None:
    typer.echo("\n".join(map(str, bundled.copy(bundled.EXPERIMENT, folder))))
    typer.echo(
        "Fill in PREREGISTRATION.md and experiment.yaml, commit them, and run:\n"
        f"  slim-rl lab run {folder}\n  slim-rl lab page {folder}"
    )
