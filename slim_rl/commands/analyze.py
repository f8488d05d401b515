"""`slim-rl analyze`: figures, statistics and a report from dialogue logs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.analysis import MAX_DIALOGUES, analyze
from slim_rl.commands.options import Games, Human, LogDirs, Logs, Paper, all_logs, check_folder, import_games
from slim_rl.commands.screen import printable
from slim_rl.errors import DataError
from slim_rl.lab import sections  # noqa: F401  (registers the lab's sections of the report)


def command(
    context: typer.Context,
    logs: Logs = None,
    log_dir: LogDirs = None,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder to write")] = Path("plots"),
    seed: Annotated[int, typer.Option(min=0, help="seed of the dialogues shown and of reference lines")] = 0,
    max_dialogues: Annotated[int, typer.Option(min=0, help="dialogues to read in the report")] = MAX_DIALOGUES,
    price: Annotated[float, typer.Option(min=0, help="question cost, in reward, for the gap to the ideal asker")] = 0.0,
    human: Human = None,
    paper: Paper = False,
    tokenizer: Annotated[Path | None, typer.Option(help="model folder, to show logged token ids as text")] = None,
    every: Annotated[int, typer.Option(min=0, help="seconds until the report is made again; 0: never")] = 0,
    game: Games = None,
) -> None:
    """Draw figures and statistics from dialogue logs, and write an HTML report."""
    import_games(game)
    while True:
        try:
            summary = analyze(
                all_logs(logs, log_dir),
                check_folder(output),
                seed=seed,
                max_dialogues=max_dialogues,
                references=human,
                tokenizer=tokenizer,
                price=price,
                paper=paper,
                seconds=every,
                command=context.obj,
            )
            counts = summary.results["counts"]
            typer.echo(f"{counts['dialogues']:,} dialogues of {counts['games']:,} games: {summary.report}")
        except DataError as error:  # a run that has logged no dialogue yet, or starts over
            if not every:
                raise
            typer.echo(printable(f"Waiting: {error}"))
        if not every:
            return
        time.sleep(every)
