"""Game state of one generated game. What a player sees follows from the state alone: `displayed(seat)`.

The state on disk has DialOp's keys, so its recorded games load unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.optimum import Assignment, best_assignment
from slim_rl.games.matching.roster import Roster

UNSEEN_VALUE = 50  # what a cell counts that neither player sees (DialOp: max_val / 2)

Table = tuple[tuple[int, ...], ...]
Mask = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class GameState:
    """An n by n instance: table[reviewer][paper] in 0..99.

    Attributes:
        table: true scores; cells that neither player sees hold 50, and are worth that.
        mask1, mask2: which cells seat 0 and seat 1 see.
        scale1, scale2: seat i is shown int(score * scale); 1.0 where scales are off.
        best_assignment_reward: the score of the best assignment.
        roster: the names of rows and columns.
    """

    table: Table
    mask1: Mask
    mask2: Mask
    scale1: float
    scale2: float
    best_assignment_reward: int
    roster: Roster = field(default_factory=Roster)

    @property
    def n(self) -> int:
        return len(self.table)

    def mask(self, seat: int) -> Mask:
        return (self.mask1, self.mask2)[seat]

    def scale(self, seat: int) -> float:
        return (self.scale1, self.scale2)[seat]

    def displayed(self, seat: int) -> tuple[tuple[int | None, ...], ...]:
        """Returns the table as `seat` sees it: scaled and truncated to an int; None where unseen."""
        return self._displays[seat]

    @cached_property
    def _displays(self) -> tuple[tuple[tuple[int | None, ...], ...], ...]:
        return tuple(self._shown(self.mask(seat), self.scale(seat)) for seat in (0, 1))

    def pooled(self, scale: float = 1.0) -> tuple[tuple[int | None, ...], ...]:
        """Returns the table with all cells that either seat sees, times `scale`, truncated to an int; None elsewhere."""
        both = tuple(
            tuple(one or two for one, two in zip(ones, twos, strict=True))
            for ones, twos in zip(self.mask1, self.mask2, strict=True)
        )
        return self._shown(both, scale)

    def _shown(self, mask: Mask, scale: float) -> tuple[tuple[int | None, ...], ...]:
        return tuple(
            tuple(int(value * scale) if seen else None for value, seen in zip(values, seens, strict=True))
            for values, seens in zip(self.table, mask, strict=True)
        )

    def score(self, assignment: Sequence[int]) -> int:
        """Returns the true score of an assignment, assignment[reviewer] = paper."""
        return sum(self.table[reviewer][paper] for reviewer, paper in enumerate(assignment))

    def best(self) -> Assignment:
        """Returns an assignment that scores `best_assignment_reward`."""
        return best_assignment(self.table)[0]

    @property
    def id(self) -> str:
        """Returns a name that two games share only if they have the same scores, masks and names, at any scales."""
        content = [self.table, self.mask1, self.mask2, self.roster.reviewers, self.roster.papers]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Returns DialOp's game state; with `reviewers` and `papers` if they are not DialOp's."""
        state: dict[str, Any] = {
            "table": [list(row) for row in self.table],
            "mask1": [[int(seen) for seen in row] for row in self.mask1],
            "mask2": [[int(seen) for seen in row] for row in self.mask2],
            "scale1": self.scale1,
            "scale2": self.scale2,
            "best_assignment_reward": self.best_assignment_reward,
        }
        if self.roster != Roster.default(self.n):
            state["reviewers"] = list(self.roster.reviewers)
            state["papers"] = list(self.roster.papers)
        return state

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> GameState:
        """Reads `to_dict`'s form, or a recorded DialOp game (keys it does not know are ignored).

        A table and two masks are enough: scales are 1 then, and a cell that neither seat sees holds 50 unless best_assignment_reward
        says what the table's optimum is.

        Raises:
            DataError: the state cannot be used; the message has all that is wrong with it.
        """
        if not isinstance(state, Mapping):
            raise DataError(f"A game state must be a mapping, but is {type(state).__name__}.")
        missing = [key for key in _NEEDED if state.get(key) is None]
        if len(missing) == len(_NEEDED):
            raise DataError(f"This is not a game state: it has none of {', '.join(_NEEDED)}; give another file.")
        wrong = [f"it has no {', '.join(missing)}"] if missing else []
        squares = {key: _square(state, key, wrong) for key in _NEEDED if key not in missing}
        table = squares.get("table")
        n = len(table) if table else None
        for key in ("mask1", "mask2"):
            if (mask := squares.get(key)) is not None and not (
                len(mask) == (n or len(mask)) and {0, 1}.issuperset(chain.from_iterable(mask))
            ):
                wrong.append(f"{key} must be {n or 'as many'} rows of {n or 'as many'} zeros and ones, like its table")
        scales = [_scale(state, key, wrong) for key in ("scale1", "scale2")]
        roster = _roster(state, n, wrong) if n else None
        if not table or wrong or roster is None:
            raise DataError(f"The game state cannot be used: {'; '.join(wrong)}.")
        masks = [tuple(tuple(map(bool, row)) for row in squares[key] or ()) for key in ("mask1", "mask2")]
        best_reward = state.get("best_assignment_reward")
        if best_reward is None:
            table = tuple(
                tuple(value if one or two else UNSEEN_VALUE for value, one, two in zip(*rows, strict=True))
                for rows in zip(table, *masks, strict=True)
            )
        best = int(best_assignment(table)[1])
        if best_reward not in (None, best) or best <= 0:
            raise DataError(
                f"The game state says best_assignment_reward={best_reward!r}, but its table's optimum is {best}; give a table with a positive "
                "optimum, and that optimum or none."
            )
        return cls(table, masks[0], masks[1], scales[0], scales[1], best, roster)


def state_of(data: Any) -> GameState | None:
    """Returns the game state in `data`, as on disk; None if it is another game's."""
    try:
        return GameState.from_dict(data)
    except DataError:
        return None


def rows_of(array: NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
    """Returns an array as a game state has it."""
    return tuple(map(tuple, array.tolist()))


_NEEDED = ("table", "mask1", "mask2")


def _square(state: Mapping[str, Any], key: str, wrong: list[str]) -> Table | None:
    try:
        values = np.asarray(state[key])
    except ValueError:  # rows of unequal length
        values = np.empty(0)
    if values.dtype == object and values.ndim == 1 and len(values):  # rows as arrays, the way a parquet reader has them
        values = np.array([list(row) for row in values]) if len({len(row) for row in values}) == 1 else np.empty(0)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.dtype.kind not in "iub":
        wrong.append(f"{key} must be as many rows as columns of whole numbers")
        return None
    return rows_of(values.astype(int) if values.dtype.kind == "b" else values)


def _scale(state: Mapping[str, Any], key: str, wrong: list[str]) -> float:
    try:
        scale = float(1.0 if state.get(key) is None else state[key])
    except (TypeError, ValueError):
        scale = 0.0
    if not 0 < scale < float("inf"):
        wrong.append(f"{key} must be a number above 0, not {state[key]!r}")
    return scale


def _roster(state: Mapping[str, Any], n: int, wrong: list[str]) -> Roster | None:
    reviewers, papers = state.get("reviewers"), state.get("papers")
    default = Roster.default(n)
    if default.n == n and reviewers is None and papers is None:
        return default
    if not (isinstance(reviewers, Sequence) and isinstance(papers, Sequence) and len(reviewers) == len(papers) == n):
        wrong.append(f"it must name its {n} reviewers and {n} papers in `reviewers` and `papers`")
        return None
    try:
        return Roster(tuple(map(str, reviewers)), tuple(map(str, papers)))
    except ConfigError as error:
        wrong.append(f"its names cannot be used: {str(error).rstrip('.')}")
        return None
