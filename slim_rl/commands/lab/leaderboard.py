"""`slim-rl lab leaderboard`: verifies result files of `slim-rl lab bench` by replaying their dialogues, and writes one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Human, SuitesFolder, check_folder
from slim_rl.commands.screen import printable, working


def command(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="result files of slim-rl lab bench, *.json.gz", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "--output-dir", help="folder for leaderboard.html, README.md and leaderboard.csv"),
    ] = Path("leaderboard"),
    suites: SuitesFolder = None,
    human: Human = None,
) -> None:
    """Verify result files of slim-rl lab bench by replaying their dialogues, and write one page."""
    from slim_rl.lab.bench.file import read
    from slim_rl.lab.bench.leaderboard import write
    from slim_rl.lab.bench.suites import load_suites

    folder = check_folder(output)
    known = load_suites(suites)
    results = []
    for path in files:
        with working(f"replaying the dialogues of {path}"):
            results.append(read(path, known))
    for sentence in write(results, folder, context.obj, human):
        typer.echo(printable(sentence))
    typer.echo(f"{folder / 'leaderboard.html'}, {folder / 'README.md'}, {folder / 'leaderboard.csv'}")
