"""`slim-rl lab compare`: two runs on the held-out games that both played, paired game by game."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Games, name_games
from slim_rl.commands.screen import printable
from slim_rl.errors import ConfigError


def command(
    first: Annotated[Path, typer.Argument(metavar="LOG", help="the baseline run", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="LOG", help="the run that is compared with it", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="write every measure to this CSV file too")] = None,
    game: Games = None,
) -> None:
    """Compare two runs on the held-out games that both played.

    A LOG is a run's folder of dialogue logs, or a file of slim-rl evaluate; a folder of several runs of one arm is compared over its
    seeds too.
    """
    import pandas as pd
    from rich.console import Console

    from slim_rl.analysis.compared import compare_runs, sentence_of
    from slim_rl.analysis.terminal_tables import change_table
    from slim_rl.files import write_atomically
    from slim_rl.formats import count

    if output is not None and output.suffix.lower() != ".csv":
        raise ConfigError(f"--output {output} is not a CSV file; name one that ends in .csv.")
    name_games(game)
    pair = compare_runs(first, second)
    console = Console()
    title = f"{pair['second']} less {pair['first']}, {count(pair['games'], 'held-out game')}"
    console.print(change_table(pair["measures"], printable(title), ("first", "second", "change")))
    console.print(printable(sentence_of(pair, named=str)), markup=False, highlight=False)
    if output is not None:
        table = pd.DataFrame(pair["measures"]).T.rename_axis("measure")
        write_atomically(output, table.rename(columns={"before": "first", "after": "second"}).to_csv())
