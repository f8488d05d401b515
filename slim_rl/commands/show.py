"""`slim-rl show`: dialogues of a log in the terminal. `slim-rl analyze` has a viewer for all of them."""

from __future__ import annotations

from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from slim_rl.analysis.load import load, read_dialogue
from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, import_games
from slim_rl.commands.screen import printable, turn_texts
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import ConfigError
from slim_rl.provenance import sentence


def command(
    logs: Logs = None,
    log_dir: LogDirs = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="dialogues to show")] = 3,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION", help="select dialogues by a pandas query, such as: phase == 'eval' and questions > 3"
        ),
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="sort by this column, lowest first; by default show the last dialogues of the log"
        ),
    ] = "",
    descending: Annotated[bool, typer.Option("--descending", help="with --sort: sort highest first")] = False,
    game: Games = None,
) -> None:
    """Show dialogues of a log in the terminal: the last ones, or those that --where selects."""
    if descending and not sort:
        raise ConfigError("--descending needs --sort. Name the column to sort by.")
    import_games(game)
    log = load(all_logs(logs, log_dir))
    chosen = choose(log.frame, num, where, sort, descending)
    console = Console()
    for warning in log.warnings:
        console.print(Text(printable(warning), "yellow"))
    for row in chosen.itertuples():
        show(console, of_line(read_dialogue(log, row)))
    for entry in log.provenance:
        console.print(Text(printable(sentence(entry)), "dim"))
    console.print(Text(f"{len(chosen)} of {len(log.frame):,} dialogues", "dim"))


def choose(frame: pd.DataFrame, num: int, where: str = "", sort: str = "", descending: bool = False) -> pd.DataFrame:
    """Returns at most `num` rows that fulfil `where`. Raises ConfigError for an invalid condition or column."""
    if sort and sort not in frame:
        raise ConfigError(f"--sort {sort} is not a column. Choose one of {', '.join(map(str, frame.columns))}.")
    try:
        holds = frame.eval(where) if where else None
    except Exception as error:  # evaluating an expression can raise anything
        raise ConfigError(
            f"--where {where}: {' '.join(str(error).split())}. Compare columns, such as reward < 0.5 and agreed == 1; choose from "
            f"{', '.join(map(str, frame.columns))}."
        ) from error
    if where and not (isinstance(holds, pd.Series) and holds.dtype == bool):
        raise ConfigError(f"--where {where} is not a condition. Compare a column, such as reward < 0.5.")
    rows = frame if holds is None else frame[holds]
    return rows.sort_values(sort, ascending=not descending, kind="stable").head(num) if sort else rows.tail(num)


def show(console: Console, dialogue: Dialogue) -> None:
    """Prints a dialogue: the policy's prompt, the turns, and how it ended."""
    step = "" if dialogue.step is None else f" · step {dialogue.step}"
    console.print(Rule(Text(printable(f"{dialogue.run or dialogue.arm}{step} · {dialogue.id}")), align="left"))
    if dialogue.prompt:
        console.print(Text(printable(dialogue.prompt[-1]["content"]), "dim"))
    for text in turn_texts(dialogue):
        console.print(text)
    ended = dialogue.failure or dialogue.stop_reason
    reward = "no reward" if dialogue.reward is None else f"reward {dialogue.reward:.3f}"
    console.print(Text(printable(f"{ended}, {reward}\n"), "bold"))
