"""`slim-rl generate`: makes games files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Overrides, Workers
from slim_rl.config import load_config, parse_config
from slim_rl.dialogue.dealing import deal, ensure_games
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import write_parquet, write_rows
from slim_rl.errors import ConfigError

FORMATS = ("jsonl", "parquet")


def command(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="a config that says all this", show_default=False)
    ] = None,
    num_games: Annotated[int | None, typer.Option(help="games to make")] = None,
    output: Annotated[Path | None, typer.Option(help="file to write: .jsonl, or .parquet for verl")] = None,
    seed: Annotated[int | None, typer.Option(help="of the deals")] = None,
    n: Annotated[int | None, typer.Option(help="reviewers and papers, 2 to 8 with DialOp's names")] = None,
    workers: Workers = 1,
    seat: Annotated[str | None, typer.Option(help="the policy's: 0, 1 or both (every other game)")] = None,
    format: Annotated[str | None, typer.Option(help="jsonl or parquet; by default as the suffix says")] = None,
    hardness: Annotated[float | None, typer.Option(help="pooled optimum over either solo plan, at least")] = None,
    scales: Annotated[bool | None, typer.Option(help="show each player differently scaled scores")] = None,
    p_observed: Annotated[float | None, typer.Option(help="chance that a player sees a cell")] = None,
    overrides: Overrides = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="make the files that CONFIG names again")] = False,
    config_file: Annotated[Path | None, typer.Option("--config", help="the same as CONFIG")] = None,
) -> None:
    """Make games: a JSONL (or parquet) file, or the files a config names.

    With --output that file is written, and replaced if it exists. Without, the train and eval files that CONFIG names are made
    where they are missing. Prints the paths.
    """
    paths = generate(
        num_games,
        output,
        seed=seed,
        n=n,
        workers=workers,
        seat=seat,
        format=format,
        hardness=hardness,
        scales=scales,
        p_observed=p_observed,
        config=config or config_file,
        overrides=overrides or (),
        overwrite=overwrite,
    )
    for path in paths:
        typer.echo(path)


def generate(
    num_games: int | None = None,
    output: str | Path | None = None,
    *,
    seed: int | None = None,
    n: int | None = None,
    workers: int = 1,
    seat: int | str | None = None,
    format: str | None = None,
    hardness: float | None = None,
    scales: bool | None = None,
    p_observed: float | None = None,
    config: str | Path | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
) -> list[Path]:
    """Makes games files and returns their paths. What is None is taken from `config`, or from the defaults.

    Without `num_games` and `output`, makes the train and eval files that `config` names, where they are missing, or all of them
    with `overwrite`. `overrides` are changes to the config, such as ``game.max_turns=10``.
    `format` is "jsonl" or "parquet" (verl's), by default as the output's suffix says. An existing `output` is replaced.

    Raises:
        ConfigError: the options make no sense, or no game fits them.
        DataError: a file cannot be written, or one that exists was made from another specification.
    """
    given = {
        "game.n": n,
        "game.hardness": hardness,
        "game.scales": scales,
        "game.p_observed": p_observed,
        "data.seed": seed,
        "data.seat": seat,
        "data.num_train": num_games,
    }
    changes = [*overrides, *(f"{key}={str(value).lower()}" for key, value in given.items() if value is not None)]
    settings = load_config(config, changes) if config is not None else parse_config({}, changes)
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, not {workers}.")
    if output is None:
        if config is None or num_games is not None or format is not None:
            raise ConfigError(
                "There is no place to write the games: give --output, or only a config that names its data files."
            )
        return [path for path in ensure_games(settings, workers, overwrite=overwrite) if path is not None]
    output = Path(output)
    format = format or output.suffix.removeprefix(".") or "jsonl"
    if format not in FORMATS:
        raise ConfigError(
            f"The format {format!r} is unknown: choose jsonl or parquet (--format, or the output's suffix)."
        )
    rows = deal(settings, "train", settings.data.num_train, workers=workers, name=output.name)
    if format == "parquet":
        write_parquet(rows, output, make_environment(settings))
    else:
        write_rows(rows, output)
    return [output]
