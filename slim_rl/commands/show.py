"""`slim-rl show`: dialogues of a log in the terminal. `slim-rl analyze` has a viewer for all of them."""

from collections.abc import Iterator
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from slim_rl.analysis.dialogues import notes
from slim_rl.analysis.load import load, read_dialogue
from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, import_games
from slim_rl.commands.screen import printable
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import ConfigError


def command(
    logs: Logs = None,
    log_dir: LogDirs = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="dialogues to show")] = 3,
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="pandas query, such as: phase == 'eval' and questions > 3")
    ] = "",
    game: Games = None,
) -> None:
    """Show dialogues of a log in the terminal: the last ones, or those that --where selects."""
    import_games(game)
    log = load(all_logs(logs, log_dir))
    chosen = choose(log.frame, num, where)
    console = Console()
    for warning in log.warnings:
        console.print(Text(printable(warning), "yellow"))
    for row in chosen.itertuples():
        show(console, of_line(read_dialogue(log, row)))
    console.print(Text(f"{len(chosen)} of {len(log.frame):,} dialogues", "dim"))


def choose(frame: pd.DataFrame, num: int, where: str = "") -> pd.DataFrame:
    """Returns the last `num` rows that fulfil `where`. Raises ConfigError for an invalid condition."""
    try:
        return (frame[frame.eval(where)] if where else frame).tail(num)
    except Exception as error:  # evaluating an expression can raise anything
        raise ConfigError(
            f"--where {where}: {' '.join(str(error).split())}. Choose from {', '.join(map(str, frame.columns))}."
        ) from error


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


def turn_texts(dialogue: Dialogue) -> Iterator[Text]:
    """Yields the dialogue's thoughts, messages, errors and observations, one text per line, questions annotated as in the report."""
    for turn in dialogue.turns:
        if turn.thought:
            yield Text(printable(f"{turn.role} thinks: {turn.thought}"), "dim italic")
        line = Text(printable(f"{turn.role}> {turn.text}"), "green" if turn.role == "policy" else "cyan")
        if marks := ", ".join(notes(turn)):
            line.append(printable(f"   ({marks})"), "dim")
        yield line
        if turn.error:
            yield Text(f"  refused: {printable(turn.error)}", "red")
        if turn.observation:
            yield Text(printable(f"game> {turn.observation}"), "cyan")
