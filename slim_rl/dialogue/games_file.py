"""Games of a run: generated once, written to the files that the config names, and read by every process.

A games file has one JSON line per game, with all that a trainer's hook needs; slime reads it with ``--input-key prompt --metadata-key
metadata``. The prompt is for such readers: a dialogue opens with the environment's own. A file with fewer games than the config asks for is
used as it is.

Invariants:
    No two games of a file, nor of the train and eval files, have the same id, which is a string.
    Each generated row names the settings that it was generated from (`spec`); a file of other settings is refused.
"""

import hashlib
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from slim_rl import jsonl
from slim_rl.config import Config
from slim_rl.environment import BaseEnvironment, as_dict, environment_class, make_environment, reset_to
from slim_rl.errors import ConfigError, DataError, SlimWarning

Split = Literal["train", "eval"]
MAKE = "slim-rl generate CONFIG --overwrite"  # writes a config's files again
_NEEDED = ("prompt", "game_state", "game_id", "metadata")
_ROUNDS = 100  # rounds of drawing more games in place of repeated ones
_EVAL_START = 2**31  # first number of the eval games


@dataclass(frozen=True, slots=True)
class GameRow:
    """Game from the policy's seat.

    Attributes:
        game_id: name of the game.
        seat: the policy's seat.
        game_state: initial state for `BaseEnvironment.reset`; JSON-able.
        prompt: the seat's opening chat messages.
        solution: facts about the best outcome (`BaseEnvironment.solution`).
        spec: settings that the file was generated from; None for custom games.
    """

    game_id: str
    seat: int
    game_state: dict[str, Any]
    prompt: list[dict[str, str]]
    solution: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Returns the name of the game and seat."""
        return f"{self.game_id}/{self.seat}"

    @classmethod
    def of(
        cls, env: BaseEnvironment, game_id: str, game_state: Any, seat: int = 0, spec: dict[str, Any] | None = None
    ) -> "GameRow":
        """Returns the row of a game, to which `env` is reset."""
        reset_to(env, game_state)
        return cls(game_id, seat, as_dict(game_state), env.prompt(seat), env.solution(), spec)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON form. `metadata` repeats what slime would otherwise drop."""
        row: dict[str, Any] = {
            "prompt": self.prompt,
            "game_state": self.game_state,
            **self.solution,
            "game_id": self.game_id,
            "label": self.game_id,  # slime's scripts name it by --label-key
            "metadata": {"game_id": self.game_id, "seat": self.seat, "game_state": self.game_state},
        }
        return row if self.spec is None else {**row, "spec": self.spec}

    @classmethod
    def from_dict(cls, row: Any, seat: int = 0) -> "GameRow":
        """Reads the form of `to_dict`, or a game state alone, with or without `game_id` and `seat`, without a prompt.

        Raises DataError if something is missing or malformed.
        """
        if not isinstance(row, Mapping):
            raise DataError(f"a row must be a mapping, one JSON object per line, but is {type(row).__name__}.")
        if row and not {"prompt", "game_state", "metadata"} & row.keys():
            state = {key: value for key, value in row.items() if key not in ("game_id", "seat")}
            name = row["game_id"] if row.get("game_id") not in (None, "") else digest_of(state)
            made = cls(_name(name), _seat(row.get("seat"), seat), state, [])
        else:
            if missing := [key for key in _NEEDED if row.get(key) is None]:
                raise DataError(f"the row has no {', '.join(missing)}.")
            seat = _seat(row["metadata"].get("seat") if isinstance(row["metadata"], Mapping) else None, seat)
            solution = {key: value for key, value in row.items() if key not in (*_NEEDED, "spec", "label")}
            state = as_dict(row["game_state"])
            made = cls(_name(row["game_id"]), seat, state, row["prompt"], solution, row.get("spec"))
        if not isinstance(made.spec, Mapping | None):
            raise DataError(f"spec must be a mapping, but is {type(made.spec).__name__}.")
        return made


def _loads(line: bytes) -> Any:
    """Returns a line's value, with whole numbers of any length. Raises ValueError if it is not JSON."""
    return json.loads(line.decode(), parse_constant=lambda name: json.loads(name.lower()))


def _name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"game_id must be a text or a whole number, not {value!r}.")
    return jsonl.whole_characters(str(value))


def _seat(value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or value not in (0, 1):
        raise DataError(f"seat must be 0 or 1, not {value!r}.")
    return int(value)  # pandas writes 1.0 where other rows have none


def digest_of(game_state: Mapping[str, Any]) -> str:
    """Returns a digest of a game's content, equal for equal states."""
    return hashlib.sha256(json.dumps(game_state, sort_keys=True).encode()).hexdigest()[:16]


def write_rows(rows: Iterable[GameRow], path: str | Path) -> int:
    """Writes JSON lines atomically; returns their number. Raises DataError if the file cannot be written."""
    return jsonl.write(path, (row.to_dict() for row in rows))


def read_rows(path: str | Path, env: BaseEnvironment | None = None, seats: Sequence[int] = (0,)) -> list[GameRow]:
    """Reads a file of `write_rows`, or of game states alone, which `env` completes.

    Args:
        env: environment that is reset to each game, so that a faulty game is found here; None: no check.
        seats: seats of the policy, alternating, in rows without a seat.

    Raises:
        DataError: the file is missing or empty, or a row is faulty; the message names the line.
    """
    rows: list[GameRow] = []
    names: set[str] = set()
    states: dict[str, str] = {}
    for number, data in jsonl.read(path, "games file", "make it with `slim-rl generate`", loads=_loads):
        try:
            row = GameRow.from_dict(data, seats[len(rows) % len(seats)])
            if env is not None:
                reset_to(env, row.game_state)
                row = row if row.prompt else replace(row, prompt=env.prompt(row.seat), solution=env.solution())
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            lacks = f", which needs {error.args[0]!r}" if isinstance(error, KeyError) and error.args else ""
            raise DataError(
                f"{path}, line {number}: it is not a game of {type(env).__name__}{lacks}; make the file with slim-rl generate."
            ) from error
        digest = digest_of(row.game_state)
        if row.name in names or states.setdefault(row.game_id, digest) != digest:
            raise DataError(
                f"{path}, line {number}: game_id {row.game_id!r} is that of a line above; give each game its own."
            )
        names.add(row.name)
        rows.append(row)
    if not rows:
        raise DataError(f"The games file {path} holds no game; make it again with `slim-rl generate`.")
    return rows


def games_files(config: Config) -> dict[Split, tuple[Path, int]]:
    """Returns the file of each split of the config, and the number of games it asks for."""
    data = config.data
    files: dict[Split, tuple[Path, int]] = {"train": (data.train, data.num_train)}
    if data.eval is not None and data.num_eval:
        files["eval"] = (data.eval, data.num_eval)
    return files


def ensure_games(config: Config, workers: int = 1, *, overwrite: bool = False) -> tuple[Path, Path | None]:
    """Writes the train and eval files of `config.data` if missing, or again with `overwrite`, and returns them.

    Raises what `load_rows` raises.
    """
    files = games_files(config)
    taken: set[str] = set()
    for split in files:
        rows = _made(config, split, taken, workers) if overwrite else load_rows(config, split, workers)
        taken |= {row.game_id for row in rows}
    return config.data.train, files["eval"][0] if "eval" in files else None


def load_rows(config: Config, split: Split = "train", workers: int = 1) -> list[GameRow]:
    """Returns the games of one split, and writes their file first if it is missing.

    The list is empty if the config has no such split.

    Raises:
        DataError: a file that exists cannot be used (`existing_rows`).
        ConfigError: no game fits the specification.

    Examples:
        >>> from slim_rl import load_config
        >>> rows = load_rows(load_config("matching_local", ["data.num_train=8", "data.num_eval=2"]), "eval")
        >>> [(row.seat, len(row.game_state["table"])) for row in rows]
        [(0, 3), (0, 3)]
    """
    if split not in games_files(config):
        return []
    if not games_files(config)[split][0].exists():
        return _made(config, split, _ids_of_other(config, split), workers)
    rows = existing_rows(config, split)
    if short := shortage(config, split, rows):
        warnings.warn(short, SlimWarning, stacklevel=2)
    return rows


def _made(config: Config, split: Split, taken: Collection[str], workers: int) -> list[GameRow]:
    path, number = games_files(config)[split]
    write_rows(list(deal(config, split, number, taken, workers, path.name)), path)
    return read_rows(path)


def existing_rows(config: Config, split: Split) -> list[GameRow]:
    """Returns the rows of a split's file after checking that the config asks for them.

    Raises:
        DataError: the file cannot be read, was generated from other settings, or shares a game with the other split.
    """
    path = games_files(config)[split][0]
    rows = read_rows(path, make_environment(config), seats_of(config))
    spec = _spec(config, split)
    for row in rows:
        for key, value in (row.spec or {}).items():
            if spec.get(key) != value:
                raise DataError(
                    f"{path} was made with {key}={value!r}, but the config has {key}={spec.get(key)!r}: name another file "
                    f"(--set data.{split}=...), or make it again with `{MAKE}`."
                )
    if shared := _ids_of_other(config, split).intersection(row.game_id for row in rows):
        raise DataError(
            f"{config.data.train} and {config.data.eval} share {len(shared)} games, so that the eval games would be trained "
            f"on: make both again with `{MAKE}`, or remove one of the files."
        )
    return rows


def shortage(config: Config, split: Split, rows: list[GameRow]) -> str | None:
    """Returns a warning if a split has too few games; None otherwise, and for a custom file."""
    path, number = games_files(config)[split]
    if len(rows) >= number or all(row.spec is None for row in rows):
        return None
    return (
        f"{path} has {len(rows):,} of the {number:,} games that data.num_{split} asks for, and these are used; "
        f"`{MAKE}` makes them all."
    )


def deal(
    config: Config, split: Split, number: int, taken: Collection[str] = (), workers: int = 1, name: str = "games"
) -> Iterator[GameRow]:
    """Yields `number` rows of distinct games without the ids `taken`; with `data.seat` both, the seats alternate.

    Raises ConfigError for another split, or if the game's settings allow too few different games.
    """
    if split not in ("train", "eval"):
        raise ConfigError(f"There is no split {split}; choose train or eval.")
    env, seats, spec = make_environment(config), seats_of(config), _spec(config, split)
    seen, first, missing = set(taken), 0, number
    with tqdm(total=number, desc=name, unit="game", delay=0.5, disable=None) as bar:
        for _ in range(_ROUNDS):
            numbers = range(first, first + missing)
            for game_id, state in env.deal(config.game, config.data.seed, split, numbers, workers):
                if missing and game_id not in seen:
                    seen.add(game_id)
                    yield GameRow.of(env, game_id, state, seats[(number - missing) % len(seats)], spec)
                    missing -= 1
                    bar.update()
            if not missing:
                return
            first = numbers.stop
    raise ConfigError(
        f"The config's games repeat: {missing} of {number} cannot be generated without repetition; ask for fewer games."
    )


def seats_of(config: Config) -> tuple[int, ...]:
    """Returns the policy's seats, over which the rows alternate."""
    return (0, 1) if config.data.seat == "both" else (config.data.seat,)


def _ids_of_other(config: Config, split: Split) -> set[str]:
    """Returns the ids of the other split's games; empty without its file."""
    file = games_files(config).get("eval" if split == "train" else "train")
    return {row.game_id for row in read_rows(file[0])} if file and file[0].exists() else set()


def _spec(config: Config, split: Split) -> dict[str, Any]:
    """Returns all settings that the rows of a file depend on, except their number."""
    settings: dict[str, Any] = config.model_dump(mode="json", include={"game"})["game"]
    for name in environment_class(config.environment).undealt:  # arms that differ in them play the same file
        settings.pop(name, None)
    start = 0 if split == "train" else _EVAL_START
    return {**settings, "seed": config.data.seed, "seat": config.data.seat, "start": start}
