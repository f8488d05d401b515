"""Exact value of a question. The asker knows some cells of the table; every other cell counts 50, its expectation.

    plan(known)   the assignment that maximises the expected table
    V(known)      that maximum: the best expected score achievable with what the asker knows
    value         V(known after the answer) - V(known before)
    gain          true score of the plan after - true score of the plan before

all as shares of `best_assignment_reward`. A value can be negative: a low answer for a cell of the plan lowers the plan's expected
score. Its expectation before the answer cannot; questions are compared by it. For a cell that the partner sees with chance s, and that is
uniform on [0, 100] then, the expected value of asking (EVI) is

    evi(c) = s (E[max(A, B + x)] - max(A, B + 50)),   x ~ U(0, 100)

where A is the best expected score without cell c and B that of the rest with c. `regret` is the best EVI among the cells
that the asker does not know, minus that of the best pair asked about: it cannot know which cells the partner sees, so a missing answer
does not count against a question. A pair that the partner refused, or has no score for, has the EVI 0 from then on.

Value, gain and the term in brackets are exact. The chance s is an estimate. A deal draws for each cell, with one chance, whether a seat
sees it; a game's state holds only the outcome, the share of the table that the partner sees. (The filter by hardness makes some cells a
little likelier than others.) It is the same for every cell, so it scales EVI and regret of a game, and does not change which question is
the best.

Known cells are known truly: if scores are shown scaled, the ideal asker has the true scores of what it sees and learns.
One assignment and one all-pairs shortest path (Floyd-Warshall over the alternating cycles of that assignment) give A and B of
all n * n cells at once, so nothing is solved again cell by cell.
"""

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import UNSEEN_VALUE, GameState, best_assignment, score_of_best, total
from slim_rl.measured import rank as standing

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Strategy = Literal["random", "greedy"]

_TOP = 2.0 * UNSEEN_VALUE  # of the uniform prior, so that its mean is what an unknown cell counts


@dataclass(frozen=True, slots=True)
class Worth:
    """Worth of one question, in shares of the best score. A question without a pair has no `regret` (None).

    Attributes:
        rank: rank of the pair's expected value among those that were unknown and not asked about before; None unless it asks
            about one of them.
        redundant: the pairs that were known, or had been asked about before.
    """

    value: float
    gain: float
    regret: float | None
    rank: float | None
    redundant: tuple[Pair, ...]


class Knowledge:
    """Knowledge of one seat of one game. `update` adds to it.

    Attributes:
        known: (n, n), the cells the asker knows: its own, and those it learned.
    """

    def __init__(self, state: GameState, seat: int) -> None:
        self._table = np.array(state.table, dtype=float)
        self._theirs = np.array(state.mask(1 - seat), dtype=bool)
        self._best = float(state.best_assignment_reward)
        self._chance = float(self._theirs.mean())
        self._refused: Bools = np.zeros_like(self._theirs)
        self._asked: Bools = np.zeros_like(self._theirs)
        self.known: Bools = np.array(state.mask(seat), dtype=bool)
        self._solve()

    def _solve(self) -> None:
        self._values = np.where(self.known, self._table, UNSEEN_VALUE)
        self._plan, self._expected = best_assignment(self._values)
        self._true = total(self._table, self._plan)
        self._expected_value: Floats | None = None

    @property
    def expected(self) -> float:
        """Returns V: the best expected score by what the asker knows, as a share of the best score."""
        return self._expected / self._best

    def expects(self, plan: Sequence[int]) -> float:
        """Returns a plan's expected score by what the asker knows, as a share of the best score; plan[reviewer] = paper."""
        return total(self._values, plan) / self._best

    @property
    def expected_value(self) -> Floats:
        """Returns the EVI of each cell, (n, n), as a share of the best score; 0 if known or refused."""
        if self._expected_value is None:
            promised = self._chance * expected_values(self._values[None], np.array([self._plan]))[0]
            self._expected_value = np.where(self.known | self._refused, 0.0, promised) / self._best
        return self._expected_value

    @property
    def unknown(self) -> int:
        """Returns the number of cells that the asker does not know."""
        return int((~self.known).sum())

    def best_known(self) -> float:
        """Returns the best plan's true score by the asker's knowledge (mean of ties), as a share of the best."""
        return float(score_of_best(self._values[None], self._table[None])[0]) / self._best

    def informative(self, pair: Pair) -> bool:
        """Returns True if the partner sees the cell and the asker does not know it."""
        return bool(self._theirs[pair] and not self.known[pair])

    def update(self, revealed: Iterable[Pair], missing: Iterable[Pair] = ()) -> tuple[float, float]:
        """Adds stated cells that the partner sees, and denied cells that it truly does not see, which are worth 50.

        Returns the change in V and in the plan's true score, as shares of the best.
        """
        before = self._expected, self._true
        new = [pair for pair in revealed if self.informative(pair)]
        new += [pair for pair in missing if not self._theirs[pair] and not self.known[pair]]
        if not new:
            return 0.0, 0.0
        for pair in new:
            self.known[pair] = True
        self._solve()
        return (self._expected - before[0]) / self._best, (self._true - before[1]) / self._best

    def ask(
        self,
        pairs: Sequence[Pair],
        revealed: Iterable[Pair],
        missing: Iterable[Pair] = (),
        refused: Iterable[Pair] = (),
    ) -> Worth:
        """Returns the worth of a question about `pairs` with these answers, denials and refusals, and adds them to the knowledge."""
        regret = rank = None
        if pairs:
            regret = max(0.0, float(self.expected_value.max() - max(self.expected_value[pair] for pair in pairs)))
        redundant = tuple(pair for pair in pairs if self.known[pair] or self._asked[pair])
        for pair in pairs:
            self._asked[pair] = True
        if len(pairs) == 1 and not redundant:
            rank = standing(float(self.expected_value[pairs[0]]), self.expected_value[~self.known & ~self._asked])
        value, gain = self.update(revealed, missing)
        for pair in refused:
            self._refused[pair], self._expected_value = True, None
        return Worth(value, gain, regret, rank, redundant)


def expected_values(values: Floats, plans: NDArray[np.intp]) -> Floats:
    """Returns each cell's expected gain in the best expected score, in points, if it now counts 50. Exact.

    Args:
        values: (games, n, n) expected tables.
        plans: (games, n) a best assignment of each; plans[g, r] = paper.

    Returns:
        (games, n, n). Meaningless where a cell is known.
    """
    n = values.shape[1]
    rows = np.arange(n)
    # loss[g, r, s]: what is lost when reviewer r takes the paper of reviewer s. Every cycle of such takeovers is another plan.
    taken = np.take_along_axis(values, plans[:, None, :].repeat(n, axis=1), axis=2)
    loss = taken[:, rows, rows][:, :, None] - taken
    way = loss.copy()
    for k in range(n):
        np.minimum(way, way[:, :, k, None] + way[:, k, None, :], out=way)
    # cycle[g, r, s]: the least loss of a plan in which r takes the paper of s.
    cycle = loss + way.transpose(0, 2, 1)
    cycle[:, rows, rows] = np.inf
    # The asker would have a cell's paper taken by its reviewer if the answer x exceeded this threshold, A - B.
    threshold = UNSEEN_VALUE + cycle
    threshold[:, rows, rows] = UNSEEN_VALUE - cycle.min(axis=2)
    low = np.clip(threshold, 0.0, _TOP)
    expected_gain = (_TOP - low) ** 2 / (2 * _TOP) + (low - np.minimum(threshold, low))  # E[max(x - threshold, 0)]
    worth = expected_gain - np.maximum(UNSEEN_VALUE - threshold, 0.0)
    out = np.empty_like(worth)
    np.put_along_axis(out, plans[:, None, :].repeat(n, axis=1), worth, axis=2)
    return out


def frontier(
    games: Sequence[GameState], seats: Sequence[int], most: int, strategy: Strategy = "greedy", seed: int = 0
) -> tuple[Floats, Floats]:
    """Returns the rewards of an asker after 0, 1, ..., `most` questions, and the expected gain of its next one.

    It asks about one unknown cell at a time, learns its true score or that there is no score, and in the end proposes a
    plan that is best for what it knows (if several, their mean). After the last cell it stays where it is.

    Args:
        games: games of any sizes. Each is played alone: its result does not depend on the others.
        seats: the asker's seat in each game.
        strategy: "greedy" asks about the cell of the highest expected value, "random" about any.
    """
    rewards, expected_gain = np.empty((len(games), most + 1)), np.empty((len(games), most + 1))
    for size in sorted({game.n for game in games}):
        of = [i for i, game in enumerate(games) if game.n == size]
        rewards[of], expected_gain[of] = _asked([games[i] for i in of], [seats[i] for i in of], most, strategy, seed)
    return rewards, expected_gain


def _asked(
    games: Sequence[GameState], seats: Sequence[int], most: int, strategy: Strategy, seed: int
) -> tuple[Floats, Floats]:
    """Computes `frontier` for games of one size: rewards and expected gains, each (games, most + 1)."""
    tables = np.array([game.table for game in games], dtype=float)
    known = np.array([game.mask(seat) for game, seat in zip(games, seats, strict=True)], dtype=bool)
    chance = np.array([game.mask(1 - seat) for game, seat in zip(games, seats, strict=True)], dtype=float).mean(
        axis=(1, 2)
    )
    best = np.array([game.best_assignment_reward for game in games], dtype=float)
    draws = [np.random.default_rng([seed, zlib.crc32(table.tobytes())]) for table in tables]
    count, n, _ = tables.shape
    rewards, expected_gain = np.empty((count, most + 1)), np.full((count, most + 1), -np.inf)
    left = np.arange(count)  # the games in which there is something to ask
    for k in range(most + 1):
        values = np.where(known[left], tables[left], UNSEEN_VALUE)
        plans = np.array([best_assignment(table)[0] for table in values]).reshape(len(left), n)
        rewards[left, k] = score_of_best(values, tables[left]) / best[left]
        asking = ~known[left].all(axis=(1, 2))
        if not asking.all():
            done = left[~asking]
            rewards[done, k:] = rewards[done, k, None]
            left, values, plans = left[asking], values[asking], plans[asking]
        if not len(left):
            break
        unknown = ~known[left]
        expected_value = (
            np.where(unknown, expected_values(values, plans), 0.0) * (chance[left] / best[left])[:, None, None]
        )
        noise = np.array([draws[i].random((n, n)) for i in left])  # a random choice, or the choice among equals
        liking = noise if strategy == "random" else expected_value + 1e-9 * noise
        expected_gain[left, k] = (
            expected_value.max(axis=(1, 2))
            if strategy == "greedy"
            else expected_value.sum(axis=(1, 2)) / unknown.sum(axis=(1, 2))
        )
        choice = np.where(unknown, liking, -np.inf).reshape(len(left), n * n).argmax(axis=1)
        known.reshape(count, n * n)[left, choice] = True
    return rewards, expected_gain


def informative_questions(game_state: Mapping[str, Any], seat: int, number: int, seed: int) -> list[str]:
    """Questions about at most `number` random pairs that `seat` cannot see and the partner can: those worth asking."""
    state = GameState.from_dict(game_state)
    seen, other = state.mask(seat), state.mask(1 - seat)
    pairs = [(r, p) for r in range(state.n) for p in range(state.n) if other[r][p] and not seen[r][p]]
    random.Random(seed).shuffle(pairs)
    return [f"[message] What is {state.roster.pair(pair)}?" for pair in pairs[:number]]
