"""State of the matching game: settings, one game, the view of a seat, the best assignment.

What a player sees follows from the state alone: `GameState.displayed(seat)`. The state on disk has DialOp's keys, so its recorded games load
unchanged.
"""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, NonNegativeFloat, model_validator

from slim_rl.config import Section
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.roster import PAPERS, REVIEWERS, Pair, Roster

KINDS: Mapping[Literal["pair", "open", "tell"], float] = {"pair": 0.70, "open": 0.15, "tell": 0.15}
Assignment = tuple[int, ...]  # assignment[reviewer] = paper
UNSEEN_VALUE = 50  # what a cell counts that neither player sees (DialOp: max_val / 2)

Table = tuple[tuple[int, ...], ...]
Mask = tuple[tuple[bool, ...], ...]


class MatchingSettings(Section):
    """The matching game (DialOp "optimization")."""

    n: int = Field(8, ge=2)
    """reviewers and papers; above 8 give `reviewers` and `papers`"""
    sizes: tuple[int, ...] = ()
    """boards of mixed sizes: for each game n is drawn from this list; empty: always `n`"""
    names: Literal["first", "random"] = "first"
    """which names of reviewers and papers a game uses; first: the first n; random: any n in any order, drawn for each
    game"""
    p_observed: float = Field(0.4, gt=0, le=1)
    """chance that a player sees a cell, independently of the others"""
    p_observed_2: float | None = Field(None, gt=0, le=1)
    """chance that the player in seat 1 sees a cell; null: p_observed"""
    scales: bool = True
    """each player is shown int(score * U(1,10)), and does not know the other's factor"""
    hardness: float = Field(1.25, ge=0)
    """minimum ratio of the best joint plan to either player's best plan alone, for a game to be kept; 0: all are kept"""
    max_turns: int = Field(20, ge=1)
    """valid actions of both players together; after that the game ends with reward 0"""
    max_errors: int = Field(3, ge=1)
    """malformed actions in a row that end the game"""
    max_proposals: int | None = Field(1, ge=1)
    """plans that each player may propose; if the last is rejected the game ends, reward 0; null: any number, as in
    DialOp, where trying plans one by one can replace asking"""
    reviewers: tuple[str, ...] | None = None
    """custom names; null: the first n of DialOp's"""
    papers: tuple[str, ...] | None = None
    """custom titles; the short title is the part before the colon; null: DialOp's"""
    planner: Literal["player", "solver"] = "player"
    """author of plans; player: the player writes them; solver: `[propose]` alone proposes the best plan by what the player
    knows, and a plan that it writes out is used as written"""
    show_known: bool | Literal["plan"] = False
    """show a player its table before each of its turns; it has the scores that it received, and "-" for no answer; plan: "*"
    also marks the best plan by that table"""
    rules: Literal["full", "short", "none"] = "full"
    """rules in the policy's prompt; full: all; short: aim and actions, about 40 tokens, and the table as a list; none: for a
    model that knows them by demonstrations"""
    open_book: bool = False
    """players also see the other's scores, so there is nothing to ask (control); partners and measures still follow the
    original masks"""

    @model_validator(mode="after")
    def _names_enough(self) -> "MatchingSettings":
        if any(size < 2 for size in self.sizes):
            raise ValueError(f"game.sizes is {list(self.sizes)}: every board has 2 reviewers or more")
        where, most = ("game.sizes", self.largest) if self.sizes else ("game.n", self.n)
        for key, default in (("reviewers", REVIEWERS), ("papers", PAPERS)):
            names = getattr(self, key)
            if names is None and most > len(default):
                raise ValueError(f"{where} is {most} but DialOp has {len(default)} names: list your own in game.{key}")
            if names is not None and len(names) < most:
                raise ValueError(f"game.{key} has {len(names)} names for n = {most}: list at least that many")
        return self

    @property
    def largest(self) -> int:
        """Returns the maximum number of reviewers of a game."""
        return max(self.sizes, default=self.n)


class PlayerSettings(Section):
    """Settings of the matching game's scripted player, which plays the demonstrations."""

    kinds: dict[Literal["pair", "open", "tell"], NonNegativeFloat] = Field(dict(KINDS), min_length=1)
    """kinds of message; pair: a question about a pair that is not seen; open: about more; tell: states a score"""
    ask_about_plan_share: float = Field(0.0, ge=0, le=1)
    """share of its games in which its questions are about pairs of its best plan so far"""
    cost_aware_share: float = Field(0.0, ge=0, le=1)
    """share of its games in which it asks only while the best question, if answered, gains more than the cost in its prompt"""
    thinks: Literal["plan", "turn", "never"] = "plan"
    """turns before which it writes its table as a thought; plan: before a plan that it computes; turn: before every turn;
    never: before none, for a game that shows it the best plan"""

    @model_validator(mode="after")
    def _some_kind_is_said(self) -> "PlayerSettings":
        if not sum(self.kinds.values()) > 0:
            raise ValueError("warmstart.player.kinds are shares that are all 0: raise one of them")
        return self


# --- the state of a game


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
    def from_dict(cls, state: Mapping[str, Any]) -> "GameState":
        """Reads `to_dict`'s form, or a recorded DialOp game (keys it does not know are ignored).

        A table and two masks are enough: scales are 1 then, and a cell that neither seat sees holds 50 unless best_assignment_reward
        says what the table's optimum is.

        Raises:
            DataError: the state cannot be used.
        """
        if not isinstance(state, Mapping):
            raise DataError(f"A game state must be a mapping, but is {type(state).__name__}.")
        if missing := [key for key in _NEEDED if state.get(key) is None]:
            if len(missing) == len(_NEEDED):
                raise DataError(f"This is not a game state: it has none of {', '.join(_NEEDED)}; give another file.")
            raise DataError(f"The game state cannot be used: it has no {', '.join(missing)}.")
        table, one, two = (_square(state, key) for key in _NEEDED)
        if not (len(one) == len(two) == len(table) and {0, 1}.issuperset(np.unique((one, two)).tolist())):
            raise _unusable(f"mask1 and mask2 must be {len(table)} rows of {len(table)} zeros and ones, like its table")
        scale1, scale2 = _scale(state, "scale1"), _scale(state, "scale2")
        best_reward = state.get("best_assignment_reward")
        if best_reward is None:
            table = np.where(one | two, table, UNSEEN_VALUE)
        best = int(best_assignment(table)[1])
        if best_reward not in (None, best) or best <= 0:
            raise DataError(
                f"The game state says best_assignment_reward={best_reward!r}, but its table's optimum is {best}; give a table with a positive "
                "optimum, and that optimum or none."
            )
        roster = _roster(state, len(table))
        return cls(rows_of(table), rows_of(one.astype(bool)), rows_of(two.astype(bool)), scale1, scale2, best, roster)


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


def _unusable(why: str) -> DataError:
    return DataError(f"The game state cannot be used: {why}.")


def _square(state: Mapping[str, Any], key: str) -> NDArray[np.int64]:
    """Returns a table of the state, whose rows may be arrays, the way a parquet reader has them."""
    try:
        values = np.array([list(row) for row in state[key]])
    except (TypeError, ValueError):  # no rows, or rows of unequal length
        values = np.empty(0)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.dtype.kind not in "iub":
        raise _unusable(f"{key} must be as many rows as columns of whole numbers")
    return values.astype(np.int64)


def _scale(state: Mapping[str, Any], key: str) -> float:
    try:
        scale = float(1.0 if state.get(key) is None else state[key])
    except (TypeError, ValueError):
        scale = 0.0
    if not 0 < scale < float("inf"):
        raise _unusable(f"{key} must be a number above 0, not {state[key]!r}")
    return scale


def _roster(state: Mapping[str, Any], n: int) -> Roster:
    reviewers, papers = state.get("reviewers"), state.get("papers")
    default = Roster.default(n)
    if default.n == n and reviewers is None and papers is None:
        return default
    if not (isinstance(reviewers, Sequence) and isinstance(papers, Sequence) and len(reviewers) == len(papers) == n):
        raise _unusable(f"it must name its {n} reviewers and {n} papers in `reviewers` and `papers`")
    try:
        return Roster(tuple(map(str, reviewers)), tuple(map(str, papers)))
    except ConfigError as error:
        raise _unusable(f"its names cannot be used: {str(error).rstrip('.')}") from error


# --- what a seat sees


@dataclass(frozen=True, slots=True)
class MatchingView:
    """View of a game from one seat, for scripted players.

    Attributes:
        seat: whose view this is.
        roster: the names.
        table: displayed scores, table[reviewer][paper]; None where unseen.
        scale: the seat's own scale; score = displayed / scale, up to rounding.
        pending: the proposal this seat must answer now, or None.
        turns_left: valid actions left to both seats together.
        proposals_left: plans the seat may still propose; None for any number.
        solver: whether `[propose]` alone is a whole plan.
    """

    seat: int
    roster: Roster
    table: tuple[tuple[int | None, ...], ...]
    scale: float
    pending: Assignment | None
    turns_left: int
    proposals_left: int | None = None
    solver: bool = False

    def __getitem__(self, pair: Pair) -> int | None:
        """Returns the score of a cell as it is shown."""
        return self.table[pair[0]][pair[1]]

    @property
    def pairs(self) -> list[Pair]:
        """Returns all cells, row by row."""
        return list(itertools.product(range(len(self.table)), range(len(self.table))))

    @property
    def seen(self) -> list[Pair]:
        """Returns the cells that the seat sees."""
        return [pair for pair in self.pairs if self[pair] is not None]

    @property
    def unseen(self) -> list[Pair]:
        """Returns the cells that it does not see."""
        return [pair for pair in self.pairs if self[pair] is None]


# --- the best assignment of a table


_SETS_UP_TO = 10  # larger boards have too many sets of papers, and next to no ties


def best_assignment(values: ArrayLike) -> tuple[Assignment, float]:
    """Returns the one-to-one assignment of rows to columns with the highest sum, and that sum. `values`: (n, n).

    Ties go to whichever SciPy's solver finds first, as in DialOp.
    """
    from scipy.optimize import linear_sum_assignment  # a command that solves nothing starts without its half second

    table = np.asarray(values, dtype=float)
    rows, columns = linear_sum_assignment(-table)  # negated like DialOp: ties must fall the same way
    return tuple(int(c) for c in columns), float(table[rows, columns].sum())


def scores_by(believed: NDArray[Any], tables: NDArray[Any]) -> NDArray[Any]:
    """Returns the true score, by its table, of each game's best assignment by `believed` that SciPy's solver finds first.

    Both are (games, n, n); returns (games,).
    """
    from scipy.optimize import linear_sum_assignment

    costs = np.negative(believed, dtype=float, order="C")  # as for `best_assignment`
    games, n, _ = costs.shape
    columns = np.array([columns for _, columns in map(linear_sum_assignment, costs)], int).reshape(games, n)
    return tables[np.arange(games)[:, None], np.arange(n), columns].sum(axis=1)


def total(values: ArrayLike, assignment: Sequence[int]) -> float:
    """Returns the sum of values[r][assignment[r]]."""
    table = np.asarray(values, dtype=float)
    return float(table[np.arange(len(assignment)), list(assignment)].sum())


def score_of_best(believed: ArrayLike, table: ArrayLike) -> NDArray[np.float64]:
    """Returns the true score, by `table`, of the best assignment by `believed`: the mean over all that tie for best.

    Both are (games, n, n); returns (games,). By dynamic programming over sets of papers, reviewer by reviewer: the highest sum of
    each set, how many assignments reach it, and their summed scores. Beyond n = 10 it is the one the solver finds first.
    """
    values, truth = np.asarray(believed, dtype=float), np.asarray(table, dtype=float)
    games, n, _ = values.shape
    if n > _SETS_UP_TO:
        return scores_by(values, truth)
    best, count, score = np.zeros((games, 1)), np.ones((games, 1)), np.zeros((games, 1))
    for reviewer, (before, paper) in enumerate(_sets_of_papers(n)):
        value = best[:, before] + values[:, reviewer, paper]
        gained = score[:, before] + count[:, before] * truth[:, reviewer, paper]
        best = value.max(axis=-1)
        ties = value == best[..., None]
        count, score = (ties * count[:, before]).sum(axis=-1), (ties * gained).sum(axis=-1)
    return score[:, 0] / count[:, 0]


def lowest_score_of_best(believed: NDArray[np.int16], tables: NDArray[np.int16]) -> NDArray[Any]:
    """Returns the lowest true score among each game's best assignments by `believed`.

    A lower bound of `scores_by` in a third of its time. Both are (n, n, games), of whole numbers from 0 to 99; returns (games,).
    Beyond n = 10 it is `scores_by`.
    """
    if len(tables) > _SETS_UP_TO:
        return scores_by(np.moveaxis(believed, -1, 0), np.moveaxis(tables, -1, 0))
    base = 1024  # more than any score of ten pairs
    gains = believed * np.int32(base) - tables
    scores = []
    for part in np.split(gains, range(128, gains.shape[-1], 128), axis=-1):  # as many games as a core's cache holds
        best = np.zeros((1, part.shape[-1]), np.int32)
        for gain, (before, paper) in zip(part, _sets_of_papers(len(part)), strict=True):
            best = (best.take(before, axis=0) + gain.take(paper, axis=0)).max(axis=1)
        scores.append(-best[0] % base)
    return np.concatenate(scores)


@cache
def _sets_of_papers(n: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Returns for each reviewer how every set of papers is reached that can be taken after it.

    Two arrays per reviewer, (sets, papers in a set): the index of the set before, among those of one paper less, and its paper.
    """
    layers = [list(itertools.combinations(range(n), size)) for size in range(n + 1)]
    return [
        (np.array([[earlier.index((*s[:i], *s[i + 1 :])) for i in range(len(s))] for s in sets]), np.array(sets))
        for earlier, sets in itertools.pairwise(layers)
    ]
