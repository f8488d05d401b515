"""`slim-rl export`: writes a run's checkpoint as a Hugging Face model with a card."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.export import export
from slim_rl.commands.options import check_folder
from slim_rl.commands.screen import show_status


def command(
    run: Annotated[Path, typer.Argument(help="folder of the run, which holds config.yaml", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the model", show_default=False)],
    step: Annotated[
        int | None, typer.Option(min=0, help="number in the checkpoint's name; the newest by default")
    ] = None,
    results: Annotated[
        list[Path] | None, typer.Option(help="logs of slim-rl evaluate, for the card's table (repeatable)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in the folder")] = False,
) -> None:
    """Write a run's checkpoint as a Hugging Face model with a card.

    `hf upload OWNER/NAME FOLDER` puts it on the hub.
    """
    check_folder(output)
    with show_status(f"exporting {run}"):
        checkpoint = export(run, output, step, results or (), overwrite)
    typer.echo(f"{output}: from {checkpoint}")
