"""`slim-rl lab page`: writes an experiment's page from the logs and contrasts that its YAML names."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Games, Paper, check_folder, import_games
from slim_rl.commands.screen import printable


def command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="folder of an experiment, or its YAML file", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "--output-dir", help="folder of the page, figures and CSV; the YAML's by default"),
    ] = None,
    values: Annotated[
        list[Path] | None,
        typer.Option(help="folder written by this command (repeatable): make the page from its values, without logs"),
    ] = None,
    paper: Paper = False,
    game: Games = None,
) -> None:
    """Write the page of an experiment: its arms, contrasts and figures, over seeds and games."""
    from slim_rl.lab.experiment.contrasts import load_manifest, manifest_file
    from slim_rl.lab.experiment.page import write

    import_games(game)
    path = manifest_file(folder)
    manifest, _ = load_manifest(path)
    output = check_folder(output or manifest.results or path.parent / "results")
    for sentence in write(path, output, context.obj, values or (), paper):
        typer.echo(printable(sentence))
    typer.echo(f"{output / 'results.html'}, {output / 'README.md'}")
