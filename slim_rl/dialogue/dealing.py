"""The games of a run: dealt once, written to the files that the config names, and read again by every process.

No two rows of a file, nor of a train and an eval file, hold the same game, told by its id: a game of few deals that are drawn by number
(`BaseEnvironment.sample_state`) has some of them again. Each row says what it was dealt from (`spec`), so that
a file of other games than the config asks for is refused and never trained on by mistake. A file of the right games that has
fewer of them than the config asks for is used as far as it goes.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from slim_rl import jsonl
from slim_rl.config import Config
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import GameRow, Split, is_bare, read_rows, write_rows
from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import ConfigError, DataError, SlimWarning

_ROUNDS = 100  # times more games are drawn where some were dealt before
_EVAL_START = 2**31  # in the spec of eval rows, which are numbered from here on
MAKE = "slim-rl generate CONFIG --overwrite"  # makes a config's files again


def games_files(config: Config) -> dict[Split, tuple[Path, int]]:
    """The splits that the config has: their files, and how many games it asks of them."""
    data = config.data
    files: dict[Split, tuple[Path, int]] = {"train": (data.train, data.num_train)}
    if data.eval is not None and data.num_eval:
        files["eval"] = (data.eval, data.num_eval)
    return files


def load_rows(config: Config, split: Split = "train", workers: int = 1) -> list[GameRow]:
    """The games of one split, dealt and written first where their file is missing. Empty if the config has no such split.

    Raises:
        DataError: a file that exists cannot be used (`existing_rows`), or shares a game with the other split's.
        ConfigError: no game fits the specification.

    Examples:
        >>> from slim_rl import load_config
        >>> rows = load_rows(load_config("matching_local", ["data.num_train=8", "data.num_eval=2"]), "eval")
        >>> [(row.seat, len(row.game_state["table"])) for row in rows]
        [(0, 3), (0, 3)]
    """
    files = games_files(config)
    if split not in files:
        return []
    taken = _ids_of_other(config, split)
    if not files[split][0].exists():
        return _make(config, split, taken, workers)
    rows = existing_rows(config, split, taken)
    if short := shortage(config, split, rows):
        warnings.warn(short, SlimWarning, stacklevel=2)
    return rows


def ensure_games(config: Config, workers: int = 1, *, overwrite: bool = False) -> tuple[Path, Path | None]:
    """The train and eval files of `config.data`, made if missing, or, with `overwrite`, made again. Raises as `load_rows` does."""
    files = games_files(config)
    if overwrite:
        taken = {row.game_id for row in _make(config, "train", (), workers)}
        if "eval" in files:
            _make(config, "eval", taken, workers)
    else:
        load_rows(config, "train", workers)
        load_rows(config, "eval", workers)
    return config.data.train, files["eval"][0] if "eval" in files else None


def existing_rows(config: Config, split: Split, taken: Collection[str] | None = None) -> list[GameRow]:
    """The rows of a split's file, once it is sure that they are those the config asks for.

    Args:
        taken: ids of the other split's games; None to read them from its file.

    Raises:
        DataError: the file cannot be read, was dealt from another specification, has fewer games than a step of training plays,
            or shares a game with the other split's.
    """
    path, number = games_files(config)[split]
    rows = read_rows(path, make_environment(config), seats_of(config))
    _check_whole(path, config)
    spec = _spec(config, split)
    for row in rows:
        for key, value in (row.spec or {}).items():
            if spec.get(key) != value:
                raise DataError(
                    f"{path} was made with {key} = {value!r} where the config says {spec.get(key)!r}: name files after their deal "
                    f"({_named_after(config, key, spec.get(key))}), or make it again with `{MAKE}`."
                )
    step = config.train.games_per_step
    if split == "train" and len(rows) < min(number, step):
        raise DataError(
            f"{path} has {len(rows)} games where the config asks for {number}, and one step of training plays {step}: "
            f"make it again with `{MAKE}`, or lower train.games_per_step."
        )
    shared = {row.game_id for row in rows}.intersection(_ids_of_other(config, split) if taken is None else taken)
    if shared:
        raise DataError(
            f"{config.data.train} and {config.data.eval} share {len(shared)} games, so that the eval games would be trained "
            f"on: make both again with `{MAKE}`, or remove one of the files."
        )
    return rows


def _named_after(config: Config, key: str, value: Any) -> str:
    """Returns the changes by which a config's games files are named after the value of one of their keys."""
    text = re.sub(r"[^\w.-]+", "-", str(value))[:20].strip("-")
    files = {split: path for split, (path, _) in games_files(config).items()}
    named = {split: path.with_stem(f"{path.stem}-{key}{text}") for split, path in files.items()}
    return shlex.join(word for split, path in named.items() for word in ("--set", f"data.{split}={path}"))


def shortage(config: Config, split: Split, rows: list[GameRow]) -> str | None:
    """A sentence if a split has fewer games than the config asks for. A file from elsewhere has as many as it has."""
    path, number = games_files(config)[split]
    if len(rows) >= number or all(row.spec is None for row in rows):
        return None
    return (
        f"{path} has {len(rows):,} of the {number:,} games that data.num_{split} asks for, and these are used; "
        f"`{MAKE}` makes them all."
    )


def _ids_of_other(config: Config, split: Split) -> set[str]:
    """The games of the other split, if its file is there."""
    file = games_files(config).get("eval" if split == "train" else "train")
    return {row.game_id for row in read_rows(file[0])} if file and file[0].exists() else set()


def _make(config: Config, split: Split, taken: Collection[str], workers: int) -> list[GameRow]:
    path, number = games_files(config)[split]
    write_rows(list(deal(config, split, number, taken, workers, path.name)), path)
    return read_rows(path)


def deal(
    config: Config, split: Split, number: int, taken: Collection[str] = (), workers: int = 1, name: str = "games"
) -> Iterator[GameRow]:
    """`number` rows of distinct games, none of them of the ids `taken`. With `data.seat` both, every other one for either seat."""
    env, seats, spec = make_environment(config), seats_of(config), _spec(config, split)
    games = _distinct(type(env), config, split, number, taken, workers)
    for index, (game_id, state) in enumerate(
        tqdm(games, total=number, desc=name, unit="game", delay=0.5, disable=None)
    ):
        yield GameRow.of(env, game_id, state, seats[index % len(seats)], spec)


def _distinct(
    made: type[BaseEnvironment], config: Config, split: Split, number: int, taken: Collection[str], workers: int
) -> Iterator[tuple[str, Any]]:
    """Games from number 0 on, without the repeated ones."""
    seen, first, missing = set(taken), 0, number
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
        f"The config's games repeat: of {number} wanted, {missing} cannot be dealt without repetition; ask for fewer."
    )


def seats_of(config: Config) -> tuple[int, ...]:
    """Returns the policy's seats, which its rows have in turn."""
    return (0, 1) if config.data.seat == "both" else (config.data.seat,)


def _check_whole(path: Path, config: Config) -> None:
    """Raises DataError for a file of game states alone on slime, which reads prompt and metadata from the file itself."""
    number, row = next(iter(jsonl.read(path)))
    if config.train.backend == "slime" and is_bare(row):
        raise DataError(
            f"{path}, line {number} is a game state alone, but slime reads the prompt from the file. Make whole rows of them: slim-rl generate "
            f"CONFIG --games {path} --output NEW.jsonl."
        )


def _spec(config: Config, split: Split) -> dict[str, Any]:
    """All that the rows of a file depend on, but for their number."""
    settings = config.game_settings
    for name in environment_class(config.environment).undealt:  # arms that differ in them play the same file
        settings.pop(name, None)
    start = 0 if split == "train" else _EVAL_START
    return {**settings, "seed": config.data.seed, "seat": config.data.seat, "start": start}
