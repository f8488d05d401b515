"""Making games files: what ``slim-rl generate`` and ``scripts/generate_data.py`` do, and what training does before it starts.

No two rows of a file, nor of a train and an eval file, hold the same game.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from slim_rl.config import Config, GameConfig, load_config, parse_config
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.dataset import GameRow, read_games, write_games, write_parquet
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState

EVAL_START = 2**31  # eval games have numbers from here on, so that they stay the same whatever num_train is

Seat = Literal[0, 1, "both"]


def generate_command(
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
    format = format or ("parquet" if output.suffix == ".parquet" else "jsonl")
    if format not in ("jsonl", "parquet"):
        raise ConfigError(f"The format {format!r} is unknown: choose jsonl or parquet.")
    rows = _rows(settings, settings.data.num_train, start=0, exclude=(), workers=workers, name=output.name)
    (write_parquet if format == "parquet" else write_games)(rows, output)
    return [output]


def ensure_games(config: Config, workers: int = 1) -> tuple[Path, Path | None]:
    """The train and eval files of `config.data`, made if missing.

    Raises:
        DataError: a file that exists is too short, was made from another specification, or shares a game with the other.
        ConfigError: no game fits the specification.
    """
    data = config.data
    wanted = [(data.train, data.num_train, 0)]
    if data.eval is not None and data.num_eval > 0:
        wanted.append((data.eval, data.num_eval, EVAL_START))
    made = {path: _checked(path, config, num, start) for path, num, start in wanted if path.exists()}
    for path, num, start in wanted:
        if path not in made:
            taken = {game_id for ids in made.values() for game_id in ids}
            rows = list(_rows(config, num, start, taken, workers, path.name))
            write_games(rows, path)
            made[path] = {row.state.id for row in rows}
    if len(wanted) == 2 and (shared := made[wanted[0][0]] & made[wanted[1][0]]):
        raise DataError(
            f"{data.train} and {data.eval} share {len(shared)} games, so that the eval games would be trained on: "
            "remove one of the files."
        )
    return data.train, data.eval if len(wanted) == 2 else None


def _checked(path: Path, config: Config, num: int, start: int) -> set[str]:
    """The ids of an existing file's games, once it is sure that they are those the config asks for."""
    rows = read_games(path)
    if len(rows) < num:
        raise DataError(
            f"{path} has {len(rows)} games where the config asks for {num}: remove it to have it made anew."
        )
    spec = _spec(config, start)
    for row in rows:
        made_from = row.spec if row.spec is not None else {"n": row.state.n}
        for key, value in made_from.items():
            if spec.get(key) != value:
                raise DataError(
                    f"{path} was made with {key} = {value!r} where the config says {spec.get(key)!r}: remove it to have "
                    "it made anew, or name another file."
                )
    return {row.state.id for row in rows}


def _spec(config: Config, start: int) -> dict[str, Any]:
    """All that the rows of a file depend on, but for their number."""
    game = config.game.model_dump(mode="json", exclude={"max_errors"})
    return {**game, "seed": config.data.seed, "seat": config.data.seat, "start": start}


def _rows(config: Config, num: int, start: int, exclude: Collection[str], workers: int, name: str) -> Iterator[GameRow]:
    seat, spec = config.data.seat, _spec(config, start)
    games = _distinct(config.game, num, config.data.seed, start, exclude, workers)
    for index, game in enumerate(tqdm(games, total=num, desc=name, unit="game", delay=2)):
        yield GameRow.of(game, index % 2 if seat == "both" else seat, config.game.max_turns, spec)


def _distinct(
    config: GameConfig, num: int, seed: int, start: int, exclude: Collection[str], workers: int
) -> Iterator[GameState]:
    """`num` games, none twice and none of `exclude`: the numbers from `start` on, without the repeated ones."""
    seen = set(exclude)
    lacking = num
    for _ in range(100):
        batch = range(start, start + lacking)
        lacking = 0
        for game in generate_games(len(batch), config, seed, workers, batch.start):
            if game.id in seen:
                lacking += 1
            else:
                seen.add(game.id)
                yield game
        if not lacking:
            return
        start = batch.stop
    raise ConfigError(f"The config's games repeat themselves: of {num} wanted, {lacking} distinct ones are lacking.")
