"""`slim-rl generate`: writes games files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.verl.data import write_parquet
from slim_rl.commands.options import Overrides, Workers, check_folder
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.games_file import Split, deal, ensure_games, read_rows, seats_of, write_rows
from slim_rl.environment import make_environment
from slim_rl.errors import ConfigError


def command(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="config, which the options override", show_default=False)
    ] = None,
    num_games: Annotated[int | None, typer.Option("--num-games", "--num-train", help="training games")] = None,
    num_test: Annotated[int | None, typer.Option(min=0, help="held-out games")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "--output-dir", help="file, .jsonl or .parquet (verl); or a folder, for --num-test too"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the games")] = None,
    n: Annotated[int | None, typer.Option(help="reviewers and papers, 2 to 8 with DialOp's names")] = None,
    workers: Workers = 1,
    format: Annotated[str | None, typer.Option(help="of the files in a folder: jsonl (default) or parquet")] = None,
    overrides: Overrides = None,
    games: Annotated[Path | None, typer.Option(help="file of game states to write as rows")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the files that CONFIG names")] = False,
) -> None:
    """Generate games: a JSONL (or parquet) file, or the files a config names.

    With --output, writes that file, or replaces it; without CONFIG, games are generated as in DialOp. Without --output, writes the
    missing ones of the train and eval files that CONFIG names, by default matching. Prints the paths. Any other setting of the games is a key: --set game.hardness=1.25.
    """
    options = {
        "game.n": n,
        "game.sizes": "[]" if n else None,
        "data.seed": seed,
        "data.num_train": num_games,
        "data.num_eval": num_test,
    }
    changes = [*(overrides or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]
    if output is None:
        if games is not None or format is not None:
            raise ConfigError("--games and --format say what is written to --output, which is not given. Name it.")
        config = config or Path("matching")
    settings = load_config(config, changes) if config is not None else parse_config({}, changes)
    suffix = format or "jsonl"
    if output is not None and format and output.suffix not in ("", f".{format}"):
        raise ConfigError(f"--output {output} is not a {format} file. Leave out --format, or name a folder.")
    files: dict[Split, Path] = {}
    if output is not None and num_test is not None:
        files = {"train": check_folder(output) / f"train.{suffix}"}
        if num_test:
            files["eval"] = output / f"test.{suffix}"
    elif output is not None:
        files = {"train": output if output.suffix or not output.name else output / f"games.{suffix}"}
    made = write(settings, files, workers, games) if files else ensure_games(settings, workers, overwrite=overwrite)
    for path in filter(None, made):
        typer.echo(path)


def write(config: Config, files: dict[Split, Path], workers: int = 1, games: Path | None = None) -> Iterator[Path]:
    """Writes games to the files of their splits, and yields the paths.

    Args:
        games: file of game states to write as training games; None: `data.num_train` new games.

    Raises:
        ConfigError: a file is neither .jsonl nor .parquet, or no game fits.
    """
    taken: set[str] = set()
    env = make_environment(config)
    for split, path in files.items():
        if path.suffix not in (".jsonl", ".parquet"):
            raise ConfigError(
                f"--output {path}: games are written as .jsonl or .parquet (jsonl or parquet). Name such a file."
            )
        number = config.data.num_train if split == "train" else config.data.num_eval
        if games is not None and split == "train":
            rows = read_rows(games, env, seats_of(config))
        else:
            rows = list(deal(config, split, number, taken, workers, path.name))
        taken |= {row.game_id for row in rows}
        if path.suffix == ".parquet":
            write_parquet(rows, path, env, split)
        else:
            write_rows(rows, path)
        yield path
