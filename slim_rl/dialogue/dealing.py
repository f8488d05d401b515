"""The games of a run: dealt once, written to the files that the config names, and read again by every process.

No two rows of a file, nor of a train and an eval file, hold the same game. Each row says what it was dealt from (`spec`), so that
a file of other games than the config asks for is refused and never trained on by mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tqdm import tqdm

from slim_rl.config import Config
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import GameRow, Split, read_rows, write_rows
from slim_rl.errors import ConfigError, DataError

_ROUNDS = 100  # times more games are drawn where some were dealt before
_EVAL_START = 2**31  # in the spec of eval rows, which are numbered from here on


def load_rows(config: Config, split: Split = "train") -> list[GameRow]:
    """The run's games, dealt and written first where their file is missing. Empty for `eval` if the config names no file."""
    ensure_games(config)
    path = config.data.train if split == "train" else config.data.eval
    return read_rows(path) if path is not None else []


def ensure_games(config: Config, workers: int = 1) -> tuple[Path, Path | None]:
    """The train and eval files of `config.data`, made if missing.

    Raises:
        DataError: a file that exists is too short, was dealt from another specification, or shares a game with the other.
        ConfigError: no game fits the specification.
    """
    data = config.data
    wanted: list[tuple[Path, int, Split]] = [(data.train, data.num_train, "train")]
    if data.eval is not None and data.num_eval > 0:
        wanted.append((data.eval, data.num_eval, "eval"))
    made = {path: _check(path, config, number, split) for path, number, split in wanted if path.exists()}
    for path, number, split in wanted:
        if path not in made:
            taken = {game_id for ids in made.values() for game_id in ids}
            rows = list(deal(config, split, number, taken, workers, path.name))
            write_rows(rows, path)
            made[path] = {row.game_id for row in rows}
    if len(wanted) == 2 and (shared := made[wanted[0][0]] & made[wanted[1][0]]):
        raise DataError(
            f"{data.train} and {data.eval} share {len(shared)} games, so that the eval games would be trained on: "
            "remove one of the files."
        )
    return data.train, data.eval if len(wanted) == 2 else None


def deal(
    config: Config, split: Split, number: int, taken: Collection[str] = (), workers: int = 1, name: str = "games"
) -> Iterator[GameRow]:
    """`number` rows of distinct games, none of them of the ids `taken`. With `data.seat` both, every other one for either seat."""
    env, seat, spec = make_environment(config), config.data.seat, _spec(config, split)
    seats = (0, 1) if seat == "both" else (seat,)
    games = _distinct(config, split, number, taken, workers)
    for index, (game_id, state) in enumerate(tqdm(games, total=number, desc=name, unit="game", delay=2)):
        yield GameRow.of(env, game_id, state, seats[index % len(seats)], spec)


def _distinct(
    config: Config, split: Split, number: int, taken: Collection[str], workers: int
) -> Iterator[tuple[str, Any]]:
    """Games from number 0 on, without the repeated ones."""
    made, seen, first, missing = type(make_environment(config)), set(taken), 0, number
    for _ in range(_ROUNDS):
        numbers = range(first, first + missing)
        missing = 0
        for game_id, state in made.deal(config.game, config.data.seed, split, numbers, workers):
            if game_id in seen:
                missing += 1
            else:
                seen.add(game_id)
                yield game_id, state
        if not missing:
            return
        first = numbers.stop
    raise ConfigError(
        f"The config's games repeat themselves: of {number} wanted, {missing} distinct ones are missing; ask for fewer."
    )


def _check(path: Path, config: Config, number: int, split: Split) -> set[str]:
    """The ids of an existing file's games, once it is sure that they are those the config asks for."""
    rows = read_rows(path, make_environment(config))
    if len(rows) < number:
        raise DataError(
            f"{path} has {len(rows)} games where the config asks for {number}: remove it to have it made anew."
        )
    spec = _spec(config, split)
    for row in rows:
        for key, value in (row.spec or {}).items():
            if spec.get(key) != value:
                raise DataError(
                    f"{path} was made with {key} = {value!r} where the config says {spec.get(key)!r}: remove it to have "
                    "it made anew, or name another file."
                )
    return {row.game_id for row in rows}


def _spec(config: Config, split: Split) -> dict[str, Any]:
    """All that the rows of a file depend on, but for their number."""
    game: Any = config.game
    settings = game.model_dump(mode="json") if isinstance(game, BaseModel) else dict(game)
    settings.pop("max_errors", None)  # no row depends on it
    start = 0 if split == "train" else _EVAL_START
    return {**settings, "seed": config.data.seed, "seat": config.data.seat, "start": start}
