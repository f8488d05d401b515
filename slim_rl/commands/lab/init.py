"""`slim-rl lab init`: what comes with slim_rl, copied out to be changed; or the files that an experiment begins with."""

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
            help="folder to copy the configs, examples and scripts to; or the word experiment, and a folder for an experiment's files. "
            "It is made if missing; by default the working folder (a folder called experiment is ./experiment)",
            show_default=False,
        ),
    ] = Path(),
    folder: Annotated[Path | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Copy configs, examples and scripts into a folder; or, with experiment, write the files of a new preregistered experiment."""
    if str(what) == EXPERIMENT:
        _experiment(folder or Path())
        return
    if folder is not None:
        raise ConfigError(
            f"slim-rl lab init takes one folder, or the word {EXPERIMENT} and a folder; there are two words, {what} and {folder}."
        )
    new = bundled.copy_to(what)
    places = ", ".join(f"{what / name}/" for name in bundled.COPIED)
    typer.echo(f"{len(new)} files in {places}" if new else f"nothing to copy: {places} are there")


def _experiment(folder: Path) -> None:
    new = bundled.copy_experiment(folder)
    typer.echo("\n".join(map(str, new)) if new else f"nothing to write: {folder} has an experiment's files")
    typer.echo(
        "Write PREREGISTRATION.md and experiment.yaml, commit them, and then:\n"
        f"  slim-rl lab run {folder}\n  slim-rl lab page {folder}"
    )
