"""`slim-rl generate`: makes games files."""

from __future__ import annotations

from pathlib import Path

from slim_rl.config import load_config, parse_config
from slim_rl.dialogue.dealing import deal, ensure_games
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import write_parquet, write_rows
from slim_rl.errors import ConfigError

FORMATS = ("jsonl", "parquet")


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
) -> list[Path]:
    """Makes games files and returns their paths. What is None is taken from `config`, or from the defaults.

    Without `num_games` and `output`, makes the train and eval files that `config` names, where they are missing.
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
    overrides = [f"{key}={str(value).lower()}" for key, value in given.items() if value is not None]
    settings = load_config(config, overrides) if config is not None else parse_config({}, overrides)
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, not {workers}.")
    if output is None:
        if config is None or num_games is not None or format is not None:
            raise ConfigError(
                "Say where the games go with --output, or give a --config that names its data files alone."
            )
        return [path for path in ensure_games(settings, workers) if path is not None]
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
