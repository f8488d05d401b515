"""`slim-rl generate`: makes games files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import Overrides, Workers
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.dealing import deal, ensure_games, seats_of
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.parquet import write_parquet
from slim_rl.dialogue.rows import Split, read_rows, write_rows
from slim_rl.errors import ConfigError


def command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="a config, whose values the options below override", show_default=False),
    ] = None,
    num_games: Annotated[
        int | None, typer.Option("--num-games", "--num-train", help="games to make, to train on")
    ] = None,
    num_test: Annotated[int | None, typer.Option(min=0, help="held-out games to make beside them")] = None,
    output: Annotated[
        Path | None, typer.Option(help="file to write: .jsonl, or .parquet for verl; with --num-test a folder of two")
    ] = None,
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
        "data.num_eval": num_test,
    }
    changes = [
        *(overrides or ()),
        *(f"{key}={str(value).lower()}" for key, value in given.items() if value is not None),
    ]
    settings = load_config(config, changes) if config is not None else parse_config({}, changes)
    if output is not None:
        for path in write(settings, output, format, workers, games, held_out=num_test is not None):
            typer.echo(path)
        return
    if config is None or any(each is not None for each in (num_games, num_test, format, games)):
        raise ConfigError(
            "There is no place to write the games: give --output, or only a config that names its data files."
        )
    for made in ensure_games(settings, workers, overwrite=overwrite):
        if made is not None:
            typer.echo(made)


def write(
    config: Config,
    output: Path,
    format: str | None = None,
    workers: int = 1,
    games: Path | None = None,
    held_out: bool = False,
) -> Iterator[Path]:
    """Writes `data.num_train` games, or those of the file `games`, to `output`; with `data.num_eval` held-out ones to its files train
    and test.

    Raises:
        ConfigError: another format than jsonl and parquet (verl's), no game fits, or held-out games are to go into one file.
    """
    format = format or ("" if held_out else output.suffix.removeprefix(".")) or "jsonl"
    if format not in ("jsonl", "parquet"):
        raise ConfigError(
            f"The format {format!r} is unknown: choose jsonl or parquet (--format, or the output's suffix)."
        )
    if held_out and (output.suffix in (".jsonl", ".parquet") or output.is_file()):
        raise ConfigError(f"--output {output} is a file, but --num-test makes two; name a folder.")
    files: dict[Split, Path] = {"train": output}
    if held_out:
        files = {"train": output / f"train.{format}", "eval": output / f"test.{format}"}
    taken: set[str] = set()
    env = make_environment(config)
    for split, path in files.items():
        number = config.data.num_train if split == "train" else config.data.num_eval
        if games is not None and split == "train":
            rows = read_rows(games, env, seats_of(config))
        else:
            rows = list(deal(config, split, number, taken, workers, path.name))
        taken |= {row.game_id for row in rows}
        if format == "parquet":
            write_parquet(rows, path, env, split)
        else:
            write_rows(rows, path)
        yield path
