"""`slim-rl generate`: makes games files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.verl.data import write_parquet
from slim_rl.commands.options import Overrides, Workers
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.dealing import deal, ensure_games, seats_of
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import GameRow, read_rows, write_rows
from slim_rl.errors import ConfigError


def command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="a config, whose values the options below override", show_default=False),
    ] = None,
    num_games: Annotated[int | None, typer.Option(help="games to make")] = None,
    output: Annotated[Path | None, typer.Option(help="file to write: .jsonl, or .parquet for verl")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the games")] = None,
    n: Annotated[int | None, typer.Option(help="reviewers and papers, 2 to 8 with DialOp's names")] = None,
    workers: Workers = 1,
    seat: Annotated[str | None, typer.Option(help="the policy's seat: 0, 1 or both (every other game)")] = None,
    format: Annotated[str | None, typer.Option(help="jsonl or parquet; by default from the suffix")] = None,
    hardness: Annotated[
        float | None, typer.Option(help="least ratio of the best joint plan to either solo plan")
    ] = None,
    scales: Annotated[bool | None, typer.Option(help="show each player differently scaled scores")] = None,
    p_observed: Annotated[float | None, typer.Option(help="chance that a player sees a cell")] = None,
    overrides: Overrides = None,
    games: Annotated[
        Path | None, typer.Option(help="JSON lines of game states to write as whole rows, in place of dealing any")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the files that CONFIG names")] = False,
    config_file: Annotated[Path | None, typer.Option("--config", help="the same as CONFIG")] = None,
) -> None:
    """Make games: a JSONL (or parquet) file, or the files a config names.

    With --output that file is written, and replaced if it exists; without a CONFIG the games are dealt as in DialOp. Without --output
    the train and eval files that CONFIG names are made if they are missing. Prints the paths.
    """
    if config is not None and config_file is not None:
        raise ConfigError(f"There are two configs, {config} and {config_file}: give one.")
    config = config or config_file
    given = {
        "game.n": n,
        "game.hardness": hardness,
        "game.scales": scales,
        "game.p_observed": p_observed,
        "data.seed": seed,
        "data.seat": seat,
        "data.num_train": num_games,
    }
    changes = [
        *(overrides or ()),
        *(f"{key}={str(value).lower()}" for key, value in given.items() if value is not None),
    ]
    settings = load_config(config, changes) if config is not None else parse_config({}, changes)
    if output is not None:
        write(settings, output, format or output.suffix.removeprefix(".") or "jsonl", workers, games)
        typer.echo(output)
        return
    if config is None or num_games is not None or format is not None or games is not None:
        raise ConfigError(
            "There is no place to write the games: give --output, or only a config that names its data files."
        )
    for path in ensure_games(settings, workers, overwrite=overwrite):
        if path is not None:
            typer.echo(path)


def write(config: Config, output: Path, format: str, workers: int = 1, games: Path | None = None) -> None:
    """Writes `data.num_train` games, or those of the file `games`. Raises ConfigError for another format than jsonl and parquet (verl's), or if no game fits."""
    if format not in ("jsonl", "parquet"):
        raise ConfigError(
            f"The format {format!r} is unknown: choose jsonl or parquet (--format, or the output's suffix)."
        )
    rows: Iterable[GameRow] = (
        read_rows(games, make_environment(config), seats_of(config))
        if games
        else deal(config, "train", config.data.num_train, workers=workers, name=output.name)
    )
    if format == "parquet":
        write_parquet(rows, output, make_environment(config))
    else:
        write_rows(rows, output)
