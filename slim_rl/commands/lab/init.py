"""`slim-rl lab init`: copies slim_rl's configs, examples and scripts, among them the files of a new experiment."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl import bundled


def command(
    folder: Annotated[Path, typer.Argument(help="folder to copy configs, examples and scripts to")] = Path(),
) -> None:
    """Copy configs, examples and scripts into a folder; examples/experiment is a template of a preregistered experiment."""
    for name in bundled.COPIED:
        typer.echo(f"Copied {len(bundled.copy(name, folder / name))} files to {folder / name}/")
