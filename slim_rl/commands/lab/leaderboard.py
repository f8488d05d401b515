"""`slim-rl lab leaderboard`: one page of the files that `slim-rl lab bench` wrote, once every dialogue in them was played again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Human, SuitesFolder, check_folder
from slim_rl.commands.screen import printable, working


def command(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="results of slim-rl lab bench, *.json.gz", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "--output-dir", help="folder for leaderboard.html, README.md and leaderboard.csv"),
    ] = Path("leaderboard"),
    suites: SuitesFolder = None,
    human: Human = None,
) -> None:
    """Check the results of slim-rl lab bench by playing their dialogues again, and make one page of them."""
    from slim_rl.lab.bench.file import read
    from slim_rl.lab.bench.leaderboard import write
    from slim_rl.lab.bench.suites import load_suites

    folder = check_folder(output)
    known = load_suites(suites)
    results = []
    for path in files:
        with working(f"playing the dialogues of {path} again"):
            results.append(read(path, known))
    for said in write(results, folder, context.obj, human):
        typer.echo(printable(said))
    typer.echo(f"{folder / 'leaderboard.html'}, {folder / 'README.md'}, {folder / 'leaderboard.csv'}")
