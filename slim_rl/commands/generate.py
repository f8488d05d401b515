"""`slim-rl generate`: writes games files."""

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
        typer.Argument(metavar="CONFIG", help="config, whose values the options below override", show_default=False),
    ] = None,
    num_games: Annotated[
        int | None, typer.Option("--num-games", "--num-train", help="number of training games")
    ] = None,
    num_test: Annotated[int | None, typer.Option(min=0, help="number of held-out games")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="file to write, .jsonl, or .parquet for verl; with --num-test a folder for two files"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the games")] = None,
    n: Annotated[int | None, typer.Option(help="reviewers and papers, 2 to 8 with DialOp's names")] = None,
    workers: Workers = 1,
    seat: Annotated[str | None, typer.Option(help="the policy's seat: 0, 1 or both (every other game)")] = None,
    format: Annotated[str | None, typer.Option(help="jsonl or parquet; the suffix's by default")] = None,
    hardness: Annotated[
        float | None, typer.Option(help="minimum ratio of the best joint plan to either solo plan")
    ] = None,
    scales: Annotated[bool | None, typer.Option(help="show each player differently scaled scores")] = None,
    p_observed: Annotated[float | None, typer.Option(help="probability that a player sees a score")] = None,
    overrides: Overrides = None,
    games: Annotated[
        Path | None, typer.Option(help="JSON lines of game states to write as rows, instead of generating games")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the files that CONFIG names")] = False,
    config_file: Annotated[Path | None, typer.Option("--config", help="same as CONFIG")] = None,
) -> None:
    """Generate games: a JSONL (or parquet) file, or the files a config names.

    With --output, writes that file, or replaces it; without CONFIG, games are generated as in DialOp. Without --output, writes the
    missing ones of the train and eval files that CONFIG names. Prints the paths.
    """
    if config is not None and config_file is not None:
        raise ConfigError(f"Two configs are named, {config} and {config_file}. Name one.")
    config = config or config_file
    options = {
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
        *(f"{key}={str(value).lower()}" for key, value in options.items() if value is not None),
    ]
    settings = load_config(config, changes) if config is not None else parse_config({}, changes)
    if output is not None:
        for path in write(settings, output, format, workers, games, held_out=num_test is not None):
            typer.echo(path)
        return
    if config is None or any(each is not None for each in (num_games, num_test, format, games)):
        raise ConfigError("No output is named. Use --output, or only a config that names its data files.")
    for file in ensure_games(settings, workers, overwrite=overwrite):
        if file is not None:
            typer.echo(file)


def write(
    config: Config,
    output: Path,
    format: str | None = None,
    workers: int = 1,
    games: Path | None = None,
    held_out: bool = False,
) -> Iterator[Path]:
    """Writes games to `output`, and yields the paths.

    Args:
        games: file of game states to write; None: `data.num_train` new games.
        held_out: write a folder with the files train and test instead, the latter with `data.num_eval` games.

    Raises:
        ConfigError: the format is unknown, no game fits, or `output` is a file although two are written.
    """
    format = format or ("" if held_out else output.suffix.removeprefix(".")) or "jsonl"
    if format not in ("jsonl", "parquet"):
        raise ConfigError(
            f"The format {format!r} is unknown. Choose jsonl or parquet (--format, or the suffix of --output)."
        )
    if held_out and (output.suffix in (".jsonl", ".parquet") or output.is_file()):
        raise ConfigError(f"--output {output} is a file, but --num-test writes two. Name a folder.")
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
