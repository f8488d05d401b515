"""`slim-rl lab convert`: converts recorded human games to chat data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.errors import ConfigError
from slim_rl.games.matching.study.recorded import convert_command


def command(
    recorded: Annotated[Path, typer.Argument(help="recorded DialOp games (optimization.jsonl)")],
    output: Annotated[Path, typer.Option(help="file to write, .jsonl")] = Path("data/recorded.jsonl"),
    seat: Annotated[str, typer.Option(help="seat to write: 0, 1 or both")] = "both",
    tokenizer: Annotated[
        str | None, typer.Option(help="folder or hub name of a tokenizer, to write input_ids and labels too")
    ] = None,
    min_reward: Annotated[float, typer.Option(help="minimum reward of a game")] = 0.0,
) -> None:
    """Convert recorded human games to chat data for supervised training; `slim-rl generate --games` makes a games file of them."""
    if output.suffix != ".jsonl":
        raise ConfigError(f"--output {output} does not end in .jsonl. Choose a name that does.")
    rows = convert_command(recorded, output, seat=seat, tokenizer=tokenizer, min_reward=min_reward)
    typer.echo(f"Wrote {rows} rows to {output}.")
