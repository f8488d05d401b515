"""Which game a run plays, and its games: the same answer for every trainer.

The config names an environment of your own by a dotted path (`environment`), so that any worker process can make one. A games
file is JSONL, one game and seat a line; DialOp's matching game and games of your own read alike.
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slim_rl.config import Config
from slim_rl.dialogue.batch import Job
from slim_rl.environment import BaseEnvironment
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import replacing
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.seeds import seed_of

Split = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class Row:
    """One game as one seat is to play it.

    Attributes:
        game_id: names the game; the two seats of one game share it.
        seat: the policy's.
        game_state: what `BaseEnvironment.reset` deals; JSON-able.
        prompt: the seat's opening chat messages.
    """

    game_id: str
    seat: int
    game_state: dict[str, Any]
    prompt: list[dict[str, str]]

    @property
    def name(self) -> str:
        return f"{self.game_id}/{self.seat}"


def environment_class(path: str) -> type[BaseEnvironment]:
    """The class a dotted path names; the matching game for an empty one. Raises ConfigError if there is no such environment."""
    if not path:
        return MatchingEnv
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"environment: {path} cannot be imported ({error}); give a dotted path such as "
            "examples.secret_number.SecretNumber, with its folder on PYTHONPATH."
        ) from error
    if not (inspect.isclass(found) and issubclass(found, BaseEnvironment)):
        raise ConfigError(f"environment: {path} is no subclass of slim_rl.environment.BaseEnvironment.")
    return found


def make_environment(config: Config) -> BaseEnvironment:
    """A fresh environment of the run's game.

    Its constructor is given `environment_args`, and those of `game.max_turns`, `max_errors` and `rules` that it takes.
    Raises ConfigError if the arguments do not suit it.
    """
    made = environment_class(config.environment)
    takes = inspect.signature(made).parameters
    shared = {key: getattr(config.game, key) for key in ("max_turns", "max_errors", "rules") if key in takes}
    try:
        return made(**(shared | config.environment_args))
    except TypeError as error:
        raise ConfigError(f"environment_args do not suit {config.environment}: {error}.") from error


def load_rows(config: Config, split: Split = "train") -> list[Row]:
    """The run's games, dealt and written first where their file is missing. Empty for `eval` if the config names no file."""
    ensure_games(config)
    path = config.data.train if split == "train" else config.data.eval
    return list(read_rows(path)) if path is not None else []


def ensure_games(config: Config) -> None:
    """Deals the games whose files are missing. The splits are dealt from different seeds."""
    if issubclass(environment_class(config.environment), MatchingEnv):
        from slim_rl.games.matching.dealing import ensure_games as ensure_matching_games

        ensure_matching_games(config)
        return
    data = config.data
    for split, path, count in (("train", data.train, data.num_train), ("eval", data.eval, data.num_eval)):
        if path is not None and not path.exists():
            write_rows(path, deal(config, split, count))


def deal(config: Config, split: str, count: int) -> Iterator[Row]:
    """`count` games of an environment of your own; two rows each if `data.seat` is both."""
    env = make_environment(config)
    seat = config.data.seat
    for index in range(count):
        state = env.sample_state(seed_of(config.data.seed, split, index))
        env.reset(state)
        for each in range(env.seats) if seat == "both" else (seat,):
            yield Row(f"{split}-{config.data.seed}-{index:05d}", each, state, env.prompt(each))


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes a games file; a torn one is never seen. `metadata` repeats what a hook needs that is given nothing else."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            metadata = {"game_state": row.game_state, "game_id": row.game_id, "seat": row.seat}
            line = {"prompt": row.prompt, "game_state": row.game_state, "game_id": row.game_id, "metadata": metadata}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_rows(path: str | Path) -> Iterator[Row]:
    """Reads a games file of any environment. Raises DataError, naming the line."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"Cannot read the games {path}: {error.strerror}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            yield Row(str(row["game_id"]), int(row["metadata"]["seat"]), row["metadata"]["game_state"], row["prompt"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, line {number} is no game ({error!r}); make the file with slim-rl generate."
            ) from error


class GameSource:
    """The games of one split, by name, as jobs to be played.

    Attributes:
        rows: every row by its name ("game_id/seat"), in the file's order.
    """

    def __init__(self, config: Config, split: Split = "train") -> None:
        self.config = config
        self.selfplay = config.partner.kind == "self"
        self.rows = {row.name: row for row in load_rows(config, split)}
        if not self.rows:
            raise DataError(f"There are no {split} games: name a file in data.{split}.")

    def environment(self) -> BaseEnvironment:
        """A fresh one."""
        return make_environment(self.config)

    def names(self, seed: int, both_seats: bool = False) -> list[str]:
        """Names of all rows, shuffled; with `both_seats` each game has its two seats, side by side."""
        names = list(dict.fromkeys(row.game_id for row in self.rows.values())) if both_seats else list(self.rows)
        random.Random(seed).shuffle(names)
        return [f"{name}/{seat}" for name in names for seat in (0, 1)] if both_seats else names

    def job(self, name: str, prefix: str, repeat: int) -> Job:
        """The dialogue numbered `repeat` of the row `name`.

        Args:
            prefix: goes before its id, and into its seed.

        Under self-play the jobs of a game's two seats share id and seed: they are one dialogue.
        """
        game_id, _, seat = name.rpartition("/")
        row = self.rows.get(name) or next(row for row in self.rows.values() if row.game_id == game_id)
        which = game_id if self.selfplay else name
        return Job(
            id=f"{prefix}/{which}/{repeat}",
            game_id=game_id,
            game_state=row.game_state,
            seat=int(seat),
            seed=seed_of(self.config.seed, prefix, which, repeat),
            group=f"{prefix}/{which}",
        )
