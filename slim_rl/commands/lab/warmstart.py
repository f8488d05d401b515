"""`slim-rl lab warmstart`: trains the tiny initial policy of local runs on demonstrations."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import ConfigFile, Overrides, Workers, check_folder
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from slim_rl.ranks import own_rank, start_together


def command(
    config: ConfigFile,
    output: Annotated[Path, typer.Option(help="folder to write")] = Path("data/warmstart"),
    overrides: Overrides = None,
    workers: Workers = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the folder if it exists")] = False,
) -> None:
    """Train the tiny initial policy of local runs on demonstrations."""
    settings = load_config(config, overrides or ())
    if check_folder(output).exists() and not overwrite:
        raise ConfigError(f"{output} exists. Name another folder with --output, or replace it with --overwrite.")
    changes = [f"--set={override}" for override in overrides or ()]
    words = ["lab", "warmstart", str(config), f"--output={output}", "--overwrite", f"--workers={workers}", *changes]
    start_together(settings.train.processes, words)
    from slim_rl.lab.warmstart.train import warmstart

    warmstart(settings, output, workers)
    if own_rank() == 0:
        typer.echo(f"Wrote {output}.")
