"""`slim-rl lab compare`: compares two runs on the held-out games that both played, paired by game."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Games, import_games
from slim_rl.commands.screen import printable
from slim_rl.errors import ConfigError


def command(
    first: Annotated[Path, typer.Argument(metavar="LOG", help="baseline run", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="LOG", help="run to compare with it", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="CSV file for all measures")] = None,
    game: Games = None,
) -> None:
    """Compare two runs on the held-out games that both played.

    LOG is a run's folder of dialogue logs, or a log of slim-rl evaluate. If both folders hold several runs of an arm, intervals are
    over seeds too.
    """
    import pandas as pd
    from rich.console import Console

    from slim_rl.analysis.compared import compare_runs, sentence_of
    from slim_rl.analysis.terminal_tables import change_table
    from slim_rl.files import write_atomically
    from slim_rl.formats import count

    if output is not None and output.suffix.lower() != ".csv":
        raise ConfigError(f"--output {output} is not a CSV file. Choose a name that ends in .csv.")
    import_games(game)
    pair = compare_runs(first, second)
    console = Console()
    title = f"{pair['second']} minus {pair['first']}, {count(pair['games'], 'held-out game')}"
    console.print(change_table(pair["measures"], printable(title), ("first", "second", "change")))
    console.print(printable(sentence_of(pair, named=str)), markup=False, highlight=False)
    if output is not None:
        table = pd.DataFrame(pair["measures"]).T.rename_axis("measure")
        write_atomically(output, table.rename(columns={"before": "first", "after": "second"}).to_csv())
