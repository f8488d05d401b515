"""`slim-rl lab warmstart`: the tiny model that local runs start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import ConfigFile, Overrides, Workers, check_folder
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from slim_rl.ranks import joined_by, own_rank


def command(
    config: ConfigFile,
    output: Annotated[Path, typer.Option(help="folder to write")] = Path("data/warmstart"),
    overrides: Overrides = None,
    workers: Workers = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the folder if it exists")] = False,
) -> None:
    """Make the tiny model that local runs start from."""
    settings = load_config(config, overrides or ())
    if check_folder(output).exists() and not overwrite:
        raise ConfigError(f"{output} exists: name another folder with --output, or replace it with --overwrite.")
    changes = [word for override in overrides or () for word in ("--set", override)]
    arguments = ["lab", "warmstart", str(config), "--output", str(output), "--overwrite", *changes]
    with joined_by(settings.train.processes, arguments):
        from slim_rl.lab.warmstart.train import (
            warmstart,  # here, so that the processes load the libraries at the same time
        )

        warmstart(settings, output, workers)
    if own_rank() == 0:
        typer.echo(f"wrote {output}")
