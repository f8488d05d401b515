"""`slim-rl lab convert`: recorded human games as chat data, or as a games file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.errors import ConfigError
from slim_rl.games.matching.chat_data import convert_command


def command(
    recorded: Annotated[Path, typer.Argument(help="recorded DialOp games (its optimization.jsonl)")],
    output: Annotated[Path, typer.Option(help="file to write, .jsonl")] = Path("data/recorded.jsonl"),
    form: Annotated[
        str, typer.Option(help="sft: chat messages with targets; games: a games file to evaluate on")
    ] = "sft",
    seat: Annotated[str, typer.Option(help="0, 1 or both")] = "both",
    tokenizer: Annotated[str | None, typer.Option(help="folder or hub name: write input_ids and labels too")] = None,
    min_reward: Annotated[float, typer.Option(help="leave out games that ended below this")] = 0.0,
) -> None:
    """Turn recorded human games into chat data, for warm starts by supervision and for evaluation."""
    if output.suffix != ".jsonl":
        raise ConfigError(f"--output {output} does not end in .jsonl: JSON lines are written; rename it.")
    rows = convert_command(recorded, output, form=form, seat=seat, tokenizer=tokenizer, min_reward=min_reward)
    typer.echo(f"wrote {rows} rows to {output}")
