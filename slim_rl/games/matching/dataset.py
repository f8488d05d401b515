"""Games on disk: one JSON line a game, which holds all that a trainer's hook needs to deal it.

A file appears whole or not at all, and a row is a pure function of its game, the seat and the turn limit. slime reads the files
with ``--input-key prompt --metadata-key metadata``; `write_parquet` makes verl's form of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from slim_rl.errors import DataError
from slim_rl.files import replacing
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.optimum import Assignment
from slim_rl.games.matching.prompt import prompt

DATA_SOURCE = "slim_rl/matching"  # verl tells data sets apart by this


@dataclass(frozen=True)
class GameRow:
    """One game as the policy in `seat` is to play it.

    Attributes:
        game_id: `GameState.id`, unless the file's maker chose another.
        seat: the policy's.
        state: the instance.
        prompt: the policy's opening chat messages.
        spec: what the file was generated from (see `command.ensure_games`); None for games from elsewhere.
    """

    game_id: str
    seat: int
    state: GameState
    prompt: list[dict[str, str]]
    spec: dict[str, Any] | None = None

    @classmethod
    def of(cls, state: GameState, seat: int = 0, max_turns: int = 20, spec: dict[str, Any] | None = None) -> GameRow:
        return cls(state.id, seat, state, prompt(state, seat, max_turns), spec)

    @property
    def ground_truth(self) -> Assignment:
        """An optimal assignment."""
        return self.state.best()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form. `metadata` repeats what slime would otherwise drop."""
        game_state = self.state.to_dict()
        row: dict[str, Any] = {
            "prompt": self.prompt,
            "game_state": game_state,
            "ground_truth": list(self.ground_truth),
            "optimal_score": self.state.best_assignment_reward,
            "game_id": self.game_id,
            "metadata": {"game_id": self.game_id, "seat": self.seat, "game_state": game_state},
        }
        if self.spec is not None:
            row["spec"] = self.spec
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> GameRow:
        """Reads `to_dict`'s form. Raises DataError if something is missing or malformed."""
        if not isinstance(row, Mapping):
            raise DataError(f"a row must be a mapping, but is {type(row).__name__}.")
        missing = [key for key in ("prompt", "game_state", "game_id", "metadata") if row.get(key) is None]
        if missing:
            raise DataError(f"the row lacks {', '.join(missing)}.")
        seat = row["metadata"].get("seat") if isinstance(row["metadata"], Mapping) else None
        if seat not in (0, 1):
            raise DataError(f"metadata.seat must be 0 or 1, not {seat!r}.")
        return cls(str(row["game_id"]), seat, GameState.from_dict(row["game_state"]), row["prompt"], row.get("spec"))


def write_games(rows: Iterable[GameRow], path: str | Path) -> int:
    """Writes JSON lines, replacing `path` only once all are written; returns how many. Raises DataError if it cannot."""
    number = 0
    with _writing(path) as temporary, temporary.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row.to_dict()) + b"\n")
            number += 1
    return number


def read_games(path: str | Path) -> list[GameRow]:
    """Reads a file of `write_games`.

    Raises:
        DataError: there is no such file, it is empty, or a row is bad; the message names the line and what is missing.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(
            f"Cannot read the games file {path}: {error.strerror}; make it with `slim-rl generate`."
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(GameRow.from_dict(orjson.loads(line)))
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: not valid JSON; mend or remove the line.") from error
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    if not rows:
        raise DataError(f"The games file {path} holds no game; make it anew with `slim-rl generate`.")
    return rows


def write_parquet(rows: Iterable[GameRow], path: str | Path) -> int:
    """Writes verl's columns (data_source, prompt, reward_model, extra_info); returns how many rows.

    The game is `extra_info["game_state"]`, readable by `GameState.from_dict` however the reader hands out nested lists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = [
        {
            "data_source": DATA_SOURCE,
            "prompt": row.prompt,
            "ability": "dialogue",
            "reward_model": {"style": "rule", "ground_truth": list(row.ground_truth)},
            "extra_info": {
                "index": index,
                "game_id": row.game_id,
                "seat": row.seat,
                "optimal_score": row.state.best_assignment_reward,
                "game_state": row.state.to_dict(),
            },
        }
        for index, row in enumerate(rows)
    ]
    with _writing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(table), temporary)
    return len(table)


@contextmanager
def _writing(path: str | Path) -> Iterator[Path]:
    """`replacing`, whose failure is a sentence."""
    try:
        with replacing(Path(path)) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}; choose another output.") from error
