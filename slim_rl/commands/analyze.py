"""`slim-rl analyze`: from dialogue logs to figures, statistics and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.analysis import MAX_DIALOGUES, analyze
from slim_rl.commands.options import Games, Human, LogDirs, Logs, Paper, all_logs, check_folder, name_games
from slim_rl.lab import sections  # noqa: F401  which the lab registers


def command(
    context: typer.Context,
    logs: Logs = None,
    log_dir: LogDirs = None,
    output: Annotated[
        Path, typer.Option("--output", "--output-dir", help="folder for figures, summary.json and report.html")
    ] = Path("plots"),
    seed: Annotated[int, typer.Option(min=0, help="seed of the permutation tests and of the dialogues shown")] = 0,
    max_dialogues: Annotated[
        int,
        typer.Option(min=0, help="at most so many dialogues in the report's viewer; figures and tables count all"),
    ] = MAX_DIALOGUES,
    price: Annotated[float, typer.Option(min=0, help="price of a question, in reward, for the ledger of asking")] = 0.0,
    human: Human = None,
    paper: Paper = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a report of other logs")] = False,
    tokenizer: Annotated[Path | None, typer.Option(help="model folder, to show logged token ids as text")] = None,
    game: Games = None,
) -> None:
    """Draw figures and statistics from dialogue logs, and write an HTML report with a dialogue viewer."""
    name_games(game)
    summary = analyze(
        all_logs(logs, log_dir),
        check_folder(output),
        seed=seed,
        max_dialogues=max_dialogues,
        references=human,
        tokenizer=tokenizer,
        overwrite=overwrite,
        price=price,
        paper=paper,
        command=context.obj,
    )
    counts = summary.results["counts"]
    typer.echo(f"{counts['dialogues']:,} dialogues of {counts['games']:,} games: {summary.report}")
