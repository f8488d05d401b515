"""Games of a run: generated once, written to the files that the config names, and read by every process.

Invariants:
    No two rows of a file, nor of the train and eval files, hold the same game (the same id).
    Each row names the settings that it was generated from (`spec`); a file of other settings is refused.

A file with fewer games than the config asks for is used as it is.
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

_ROUNDS = 100  # rounds of drawing more games in place of repeated ones
_EVAL_START = 2**31  # first number of the eval games
MAKE = "slim-rl generate CONFIG --overwrite"  # writes a config's files again


def games_files(config: Config) -> dict[Split, tuple[Path, int]]:
    """Returns the file of each split of the config, and the number of games it asks for."""
    data = config.data
    files: dict[Split, tuple[Path, int]] = {"train": (data.train, data.num_train)}
    if data.eval is not None and data.num_eval:
        files["eval"] = (data.eval, data.num_eval)
    return files


def load_rows(config: Config, split: Split = "train", workers: int = 1) -> list[GameRow]:
    """Returns the games of one split, and writes their file first if it is missing.

    The list is empty if the config has no such split.

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
    """Writes the train and eval files of `config.data` if missing, or again with `overwrite`, and returns them.

    Raises what `load_rows` raises.
    """
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
    """Returns the rows of a split's file after checking that the config asks for them.

    Args:
        taken: ids of the other split's games; None: read from its file.

    Raises:
        DataError: the file cannot be read, was generated from other settings, has fewer games than a training step plays, or shares
            a game with the other split.
    """
    path, number = games_files(config)[split]
    rows = read_rows(path, make_environment(config), seats_of(config))
    _check_whole(path, config)
    spec = _spec(config, split)
    for row in rows:
        for key, value in (row.spec or {}).items():
            if spec.get(key) != value:
                raise DataError(
                    f"{path} was made with {key}={value!r}, but the config has {key}={spec.get(key)!r}: name another file "
                    f"({_named_after(config, key, spec.get(key))}), or make it again with `{MAKE}`."
                )
    step = config.train.games_per_step
    if split == "train" and len(rows) < min(number, step):
        raise DataError(
            f"{path} has {len(rows)} games, but data.num_train is {number} and one training step plays {step}: "
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
    """Returns the options that name a config's games files after the value of one key."""
    text = re.sub(r"[^\w.-]+", "-", str(value))[:20].strip("-")
    files = {split: path for split, (path, _) in games_files(config).items()}
    named = {split: path.with_stem(f"{path.stem}-{key}{text}") for split, path in files.items()}
    return shlex.join(word for split, path in named.items() for word in ("--set", f"data.{split}={path}"))


def shortage(config: Config, split: Split, rows: list[GameRow]) -> str | None:
    """Returns a warning if a split has too few games; None otherwise, and for a custom file."""
    path, number = games_files(config)[split]
    if len(rows) >= number or all(row.spec is None for row in rows):
        return None
    return (
        f"{path} has {len(rows):,} of the {number:,} games that data.num_{split} asks for, and these are used; "
        f"`{MAKE}` makes them all."
    )


def _ids_of_other(config: Config, split: Split) -> set[str]:
    """Returns the ids of the other split's games; empty without its file."""
    file = games_files(config).get("eval" if split == "train" else "train")
    return {row.game_id for row in read_rows(file[0])} if file and file[0].exists() else set()


def _make(config: Config, split: Split, taken: Collection[str], workers: int) -> list[GameRow]:
    path, number = games_files(config)[split]
    write_rows(list(deal(config, split, number, taken, workers, path.name)), path)
    return read_rows(path)


def deal(
    config: Config, split: Split, number: int, taken: Collection[str] = (), workers: int = 1, name: str = "games"
) -> Iterator[GameRow]:
    """Yields `number` rows of distinct games without the ids `taken`; with `data.seat` both, the seats alternate."""
    env, seats, spec = make_environment(config), seats_of(config), _spec(config, split)
    games = _distinct(type(env), config, split, number, taken, workers)
    for index, (game_id, state) in enumerate(
        tqdm(games, total=number, desc=name, unit="game", delay=0.5, disable=None)
    ):
        yield GameRow.of(env, game_id, state, seats[index % len(seats)], spec)


def _distinct(
    made: type[BaseEnvironment], config: Config, split: Split, number: int, taken: Collection[str], workers: int
) -> Iterator[tuple[str, Any]]:
    """Yields games from number 0 on, without repeated ones."""
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
        f"The config's games repeat: {missing} of {number} cannot be generated without repetition; ask for fewer games."
    )


def seats_of(config: Config) -> tuple[int, ...]:
    """Returns the policy's seats, over which the rows alternate."""
    return (0, 1) if config.data.seat == "both" else (config.data.seat,)


def _check_whole(path: Path, config: Config) -> None:
    """Raises DataError if slime, which reads prompts from the file, would read a file of game states alone."""
    number, row = next(iter(jsonl.read(path)))
    if config.train.backend == "slime" and is_bare(row):
        raise DataError(
            f"{path}, line {number} is a game state alone, but slime reads the prompt from the file. Add prompts to it: slim-rl generate "
            f"CONFIG --games {path} --output NEW.jsonl."
        )


def _spec(config: Config, split: Split) -> dict[str, Any]:
    """Returns all settings that the rows of a file depend on, except their number."""
    settings = config.game_settings
    for name in environment_class(config.environment).undealt:  # arms that differ in them play the same file
        settings.pop(name, None)
    start = 0 if split == "train" else _EVAL_START
    return {**settings, "seed": config.data.seed, "seat": config.data.seat, "start": start}
