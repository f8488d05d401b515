"""`slim-rl lab page`: an experiment's page, from the logs and the contrasts that its YAML names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Games, Paper, check_folder, name_games
from slim_rl.commands.screen import printable


def command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="folder of an experiment, or its YAML file", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--output-dir",
            help="folder for README.md, results.html, figures and CSV; by default the YAML's",
        ),
    ] = None,
    values: Annotated[
        Path | None, typer.Option(help="a folder written by this command: make the page from its values, without logs")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the values in the output folder of runs whose logs are not here")
    ] = False,
    paper: Paper = False,
    game: Games = None,
) -> None:
    """Write the page of an experiment: its arms, contrasts and figures, over seeds and games."""
    from slim_rl.lab.experiment.contrasts import load_manifest, manifest_file
    from slim_rl.lab.experiment.page import write

    name_games(game)
    path = manifest_file(folder)
    manifest, _ = load_manifest(path)
    output = check_folder(output or manifest.results or path.parent / "results")
    for said in write(path, output, context.obj, values, keep or manifest.keep, paper):
        typer.echo(printable(said))
    typer.echo(f"{output / 'results.html'}, {output / 'README.md'}")
