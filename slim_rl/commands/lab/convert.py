"""`slim-rl lab convert`: converts recorded human games to chat data."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.dialogue.chat import Chat
from slim_rl.games.matching.study.recorded import convert
from slim_rl.policies import load_tokenizer


def command(
    recorded: Annotated[Path, typer.Argument(help="recorded DialOp games (optimization.jsonl)")],
    output: Annotated[Path, typer.Option(help="file to write, .jsonl")] = Path("data/recorded.jsonl"),
    tokenizer: Annotated[
        str | None, typer.Option(help="folder or hub name of a tokenizer, to write input_ids and labels too")
    ] = None,
) -> None:
    """Convert recorded human games to chat data for supervised training; `slim-rl generate --games` makes a games file of them."""
    rows = convert(recorded, output, Chat(load_tokenizer(tokenizer)) if tokenizer else None)
    typer.echo(f"Wrote {rows} rows to {output}.")
