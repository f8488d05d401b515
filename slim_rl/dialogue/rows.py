"""Games file: one JSON line per game, with all that a trainer's hook needs. It is written atomically.

slime reads it with ``--input-key prompt --metadata-key metadata``; `dialogue.parquet` writes verl's form. The prompt is for such
readers: a dialogue opens with the environment's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from slim_rl import jsonl
from slim_rl.environment import BaseEnvironment, as_dict, reset_to
from slim_rl.errors import DataError

Split = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class GameRow:
    """Game from the policy's seat.

    Attributes:
        game_id: name of the game.
        seat: the policy's seat.
        game_state: initial state for `BaseEnvironment.reset`; JSON-able.
        prompt: the seat's opening chat messages.
        solution: facts about the best outcome (`BaseEnvironment.solution`).
        spec: settings that the file was generated from (see `dealing`); None for custom games.
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
    ) -> GameRow:
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
            "metadata": {"game_id": self.game_id, "seat": self.seat, "game_state": self.game_state},
        }
        return row if self.spec is None else {**row, "spec": self.spec}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> GameRow:
        """Reads the form of `to_dict`. Raises DataError, with all faults, if something is missing or malformed."""
        if not isinstance(row, Mapping):
            raise DataError(f"a row must be a mapping, but is {type(row).__name__}.")
        missing = [key for key in _NEEDED if row.get(key) is None]
        wrong = [f"the row has no {', '.join(missing)}"] if missing else []
        seat = row["metadata"].get("seat") if isinstance(row.get("metadata"), Mapping) else None
        if "metadata" not in missing and seat not in (0, 1):
            wrong.append(f"metadata.seat must be 0 or 1, not {seat!r}")
        if not isinstance(row.get("spec"), Mapping | None):
            wrong.append(f"spec must be a mapping, but is {type(row['spec']).__name__}")
        if wrong:
            raise DataError(f"{'; '.join(wrong)}.")
        solution = {key: value for key, value in row.items() if key not in (*_NEEDED, "spec")}
        return cls(str(row["game_id"]), seat or 0, row["game_state"], row["prompt"], solution, row.get("spec"))

    @classmethod
    def bare(cls, row: Mapping[str, Any], seat: int) -> GameRow:
        """Reads a custom game: a game state, with `game_id` and `seat` if it has them, and without a prompt."""
        state = {key: value for key, value in row.items() if key not in ("game_id", "seat")}
        seat = row.get("seat", seat)
        if seat not in (0, 1):
            raise DataError(f"seat must be 0 or 1, not {seat!r}.")
        digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]
        return cls(str(row.get("game_id") or digest), seat, state, [])


def is_bare(row: Any) -> bool:
    """Returns True if a row is a game state alone, without prompt and metadata."""
    return isinstance(row, Mapping) and bool(row) and not {"prompt", "game_state", "metadata"} & row.keys()


_NEEDED = ("prompt", "game_state", "game_id", "metadata")


def write_rows(rows: Iterable[GameRow], path: str | Path) -> int:
    """Writes JSON lines atomically; returns their number. Raises DataError if the file cannot be written."""
    return jsonl.write(path, (row.to_dict() for row in rows))


def read_rows(path: str | Path, env: BaseEnvironment | None = None, seats: Sequence[int] = (0,)) -> list[GameRow]:
    """Reads a file of `write_rows`, or of game states alone, which `env` completes.

    Args:
        env: environment that is reset to each game, so that a faulty game is found here; None: no check.
        seats: seats of the policy, alternating, in rows without a seat.

    Raises:
        DataError: the file is missing or empty, or a row is faulty; the message names the line and all its faults.
    """
    rows: list[GameRow] = []
    for number, data in jsonl.read(path, "games file", "make it with `slim-rl generate`"):
        bare, row, wrong = is_bare(data), None, []
        try:
            row = GameRow.bare(data, seats[len(rows) % len(seats)]) if bare else GameRow.from_dict(data)
        except DataError as error:
            wrong.append(str(error))
        state = row.game_state if row else data.get("game_state") if isinstance(data, Mapping) else None
        try:
            if env is not None and state is not None:
                reset_to(env, state)
                if bare and row:
                    row = replace(row, prompt=env.prompt(row.seat), solution=env.solution())
        except DataError as error:
            wrong.append(str(error))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            wrong.append(f"it is not a game of {type(env).__name__} ({error!r}); make the file with slim-rl generate.")
        if row is None or wrong:
            raise DataError(f"{path}, line {number}: {' '.join(wrong)}")
        rows.append(row)
    if not rows:
        raise DataError(f"The games file {path} holds no game; make it again with `slim-rl generate`.")
    return rows
