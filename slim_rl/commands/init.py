"""`slim-rl init`: what comes with slim_rl, copied out to be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl import bundled


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="folder to copy to; it is made if missing")
    ] = Path(),
) -> None:
    """Copy the configs, examples and scripts into a folder, to change them."""
    new = bundled.copy_to(folder)
    places = ", ".join(f"{folder / name}/" for name in bundled.COPIED)
    typer.echo(f"{len(new)} files in {places}" if new else f"nothing to copy: {places} are there")
