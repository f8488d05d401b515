"""Instances from DialOp's distribution by exact rejection. Game i depends on (seed, i) and the config alone, never on batch
size or number of workers: it is the first draw of its own random stream that is hard enough.

Speed comes from a filter that no keepable draw fails. At 8×8 one draw in some 3,000 is hard enough, and DialOp solves three
assignments for each. Here a whole batch is solved at once by dynamic programming over subsets of papers, which bounds each
solo plan's true score from below and is compared with a cheap upper bound on the optimum; only what passes (about one in a
hundred) meets the solver. The solver decides, ties included, just as in DialOp.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from slim_rl.errors import ConfigError
from slim_rl.games.matching.instance import UNSEEN_VALUE, GameState, rows_of
from slim_rl.games.matching.optimum import best_assignment, total
from slim_rl.games.matching.roster import PAPERS, REVIEWERS, Roster
from slim_rl.games.matching.settings import MatchingSettings
from slim_rl.processes import check_processes, environment

VALUES = 100  # scores are 0..99
SCALES = (1.0, 10.0)
MAX_DRAWS = 2**19  # for one game; a config that keeps one draw in 50,000 or more practically never gets there

_BLOCK = 256  # draws a game's stream yields at a time
_BLOCKS = 64  # blocks looked at together
_SLICE = 16  # blocks drawn and solved at once: as many as a core's cache holds
_DP_MAX_N = 10  # beyond it the subsets are too many, and scores no longer fit the packing of `_solo_floor`
_PACK = 1024


def generate_games(
    num: int, config: MatchingSettings, seed: int = 0, workers: int = 1, start: int = 0
) -> Iterator[GameState]:
    """Games number `start` to `start + num - 1` of a seed, in order.

    Raises:
        ConfigError: no draw in MAX_DRAWS is hard enough.
    """
    make = partial(_generate_mixed, config, seed)
    if workers <= 1:
        yield from make(range(start, start + num))
        return
    size = max(1, min(256, -(-num // (4 * workers))))
    chunks = [range(at, min(at + size, start + num)) for at in range(start, start + num, size)]
    check_processes(workers, "--workers")
    safe = environment({"PYTHONSAFEPATH": "1"})  # its processes import nothing from the working folder
    with safe, ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for games in pool.map(partial(_generate_list, config, seed), chunks):
                yield from games
        finally:
            pool.shutdown(cancel_futures=True)


def roster_for(config: MatchingSettings, rng: np.random.Generator | None = None) -> Roster:
    """Returns the config's names, or DialOp's: the first n of them, or any n that `rng` draws."""
    reviewers, papers = config.reviewers or REVIEWERS, config.papers or PAPERS
    if rng is not None:
        reviewers, papers = (tuple(names[i] for i in rng.permutation(len(names))) for names in (reviewers, papers))
    return Roster(reviewers[: config.n], papers[: config.n])


def board_for(config: MatchingSettings, rng: np.random.Generator) -> tuple[MatchingSettings, Roster]:
    """Returns the settings of one game, its n drawn if the config names several, and its names."""
    if config.sizes:
        config = config.changed(n=int(rng.choice(config.sizes)), sizes=())
    return config, roster_for(config, rng if config.names == "random" else None)


@dataclass(slots=True)
class _Stream:
    """The random draws of one game."""

    index: int
    cells: np.random.Generator
    scales: np.random.Generator  # apart, so that scales do not depend on how many draws were looked at
    drawn: int = 0


@dataclass(frozen=True, slots=True)
class _Draws:
    """A batch of candidates.

    Attributes:
        table, mask1, mask2: (n, n, batch).
        at: (batch,), where each stands among all that are looked at together.
        floor: (batch,), a lower bound of the better solo plan's true score.
    """

    table: NDArray[np.int16]
    mask1: NDArray[np.bool_]
    mask2: NDArray[np.bool_]
    at: NDArray[np.int64]
    floor: NDArray[np.int32]

    @classmethod
    def join(cls, parts: list[_Draws]) -> _Draws:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts], axis=-1) for f in fields(cls)))


def _generate_list(config: MatchingSettings, seed: int, indices: range) -> list[GameState]:
    return list(_generate_mixed(config, seed, indices))


def _generate_mixed(config: MatchingSettings, seed: int, indices: range) -> Iterator[GameState]:
    """Games of these numbers: those of one size side by side, each with its own names."""
    if not config.sizes and config.names == "first":
        yield from _generate(config, roster_for(config), seed, indices)
        return
    # The third of a game's streams; `_stream` has the first two.
    boards = {
        i: board_for(config, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i, 2)))) for i in indices
    }
    of_size = {board.n: board for board, _ in boards.values()}
    made = {
        n: _generate(board, roster_for(board), seed, [i for i in indices if boards[i][0].n == n])
        for n, board in of_size.items()
    }
    for i in indices:
        board, roster = boards[i]
        yield replace(next(made[board.n]), roster=roster)


def _generate(config: MatchingSettings, roster: Roster, seed: int, indices: Sequence[int]) -> Iterator[GameState]:
    waiting = iter(indices)
    streams: list[_Stream] = []
    made: dict[int, GameState] = {}
    finished = 0
    for index in indices:
        while index not in made:
            # Few at first, so that a config that keeps nothing is found out soon.
            wanted = min(_BLOCKS, 1 + 2 * finished)
            streams += [_stream(seed, i) for i in itertools.islice(waiting, wanted - len(streams))]
            new = _advance(streams, config, roster)
            finished += len(new)
            made |= new
            streams = [stream for stream in streams if stream.index not in made]
        yield made.pop(index)


def _stream(seed: int, index: int) -> _Stream:
    cells, scales = np.random.SeedSequence(seed, spawn_key=(index,)).spawn(2)
    return _Stream(index, np.random.default_rng(cells), np.random.default_rng(scales))


def _advance(streams: list[_Stream], config: MatchingSettings, roster: Roster) -> dict[int, GameState]:
    """Looks at one batch of draws, split evenly among the streams; returns the games it made, by index."""
    blocks = _BLOCKS // len(streams)
    owners = [stream for stream in streams for _ in range(blocks)]
    sifted = [
        _sift(_draw(owners[i : i + _SLICE], i * _BLOCK, config), 0, config.hardness)
        for i in range(0, len(owners), _SLICE)
    ]
    draws = _sift(_Draws.join(sifted), 1, config.hardness)
    made: dict[int, GameState] = {}
    for i, at in enumerate(draws.at.tolist()):
        stream = owners[at // _BLOCK]
        if stream.index not in made and (optimum := _optimum_if_hard(draws, i, config.hardness)) is not None:
            made[stream.index] = _game(draws, i, optimum, stream, config.scales, roster)
    for stream in streams:
        stream.drawn += blocks * _BLOCK
        if stream.drawn >= MAX_DRAWS and stream.index not in made:
            raise ConfigError(
                f"None of {MAX_DRAWS:,} draws with n = {config.n} and p_observed = {config.p_observed} has an optimum "
                f"above {config.hardness} times either player's solo plan: lower game.hardness or change game.p_observed."
            )
    return made


def _draw(owners: list[_Stream], first: int, config: MatchingSettings) -> _Draws:
    """Draws one block per stream named in `owners`, in that order; they are numbered from `first`."""
    shape = (config.n, config.n, _BLOCK)
    chances = (config.p_observed, config.p_observed if config.p_observed_2 is None else config.p_observed_2)
    thresholds = np.array([max(1, round(p * 2**32)) - 1 for p in chances], np.uint32).reshape(2, 1, 1, 1)
    tables, masks = [], []
    for stream in owners:
        tables.append(stream.cells.integers(0, VALUES, shape, dtype=np.uint16))
        bits = stream.cells.bit_generator.random_raw(config.n * config.n * _BLOCK).view(np.uint32)
        masks.append(bits.reshape(2, *shape) <= thresholds)
    mask1, mask2 = np.concatenate(masks, axis=3)
    table = _known(np.concatenate(tables, axis=2).astype(np.int16), mask1 | mask2)
    at = np.arange(first, first + table.shape[2])
    return _Draws(table, mask1, mask2, at, np.zeros(len(at), np.int32))


def _known(table: NDArray[np.int16], mask: NDArray[np.bool_]) -> NDArray[np.int16]:
    """Returns the table with unseen cells at their expectation; arithmetic is ten times as fast here as a masked write."""
    return (table - np.int16(UNSEEN_VALUE)) * mask + np.int16(UNSEEN_VALUE)


def _sift(draws: _Draws, seat: int, hardness: float) -> _Draws:
    """Leaves out draws whose solo plan for `seat` is certainly too good."""
    table = draws.table
    if len(table) > _DP_MAX_N or not hardness:  # at 0 every draw is hard enough
        return draws
    floor = np.maximum(draws.floor, _solo_floor(table, draws.mask2 if seat else draws.mask1))
    ceiling = np.minimum(_optimum_ceiling(table), _optimum_ceiling(table.swapaxes(0, 1)))
    keep = np.flatnonzero(floor * hardness < ceiling)
    return _Draws(table[:, :, keep], draws.mask1[:, :, keep], draws.mask2[:, :, keep], draws.at[keep], floor[keep])


def _optimum_if_hard(draws: _Draws, i: int, hardness: float) -> int | None:
    """Returns the optimum of draw `i` if it exceeds both solo plans by more than `hardness`, by DialOp's own computation."""
    table = draws.table[:, :, i]
    optimum = best_assignment(table)[1]
    if draws.floor[i] * hardness < optimum and all(
        total(table, best_assignment(_known(table, mask[:, :, i]))[0]) * hardness < optimum
        for mask in (draws.mask1, draws.mask2)
    ):
        return int(optimum)
    return None


def _optimum_ceiling(table: NDArray[np.int16]) -> NDArray[np.int32]:
    """Returns an upper bound of the optimum, (batch,): each row's maximum, minus the minimum shortfall of each column."""
    rows = table.max(axis=1)
    shortfall = (table - rows[:, None]).max(axis=0)
    return rows.sum(axis=0, dtype=np.int32) + shortfall.sum(axis=0, dtype=np.int32)


def _solo_floor(table: NDArray[np.int16], mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Returns the minimum true score of any plan that is best by what one player knows; (batch,).

    Maximises belief * _PACK - truth, so that among equal beliefs the worst in truth wins, whichever of them the solver takes.
    """
    packed = _maximum(_known(table, mask).astype(np.int32) * _PACK - table)
    return -packed & (_PACK - 1)


def _maximum(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the optimum of each of a batch of tables (n, n, batch).

    Dynamic programming, row by row, over sets of used columns.
    """
    best = [np.zeros(values.shape[2], np.int32)]
    spare = np.empty_like(best[0])
    for row, transitions in zip(values, _transitions(len(values)), strict=True):
        columns = list(row)
        level = []
        for (before, column), *others in transitions:
            top = best[before] + columns[column]
            for before, column in others:
                np.add(best[before], columns[column], out=spare)
                np.maximum(top, spare, out=top)
            level.append(top)
        best = level
    return best[0]


@cache
def _transitions(n: int) -> list[list[list[tuple[int, int]]]]:
    """Yields, per size k = 1..n and set of k columns, its k pairs (set without a column, that column)."""
    levels = [list(itertools.combinations(range(n), k)) for k in range(n + 1)]
    places = [{columns: place for place, columns in enumerate(level)} for level in levels]
    return [[[(places[k - 1][s[:i] + s[i + 1 :]], s[i]) for i in range(k)] for s in levels[k]] for k in range(1, n + 1)]


def _game(draws: _Draws, i: int, optimum: int, stream: _Stream, scales: bool, roster: Roster) -> GameState:
    table, mask1, mask2 = (rows_of(array[:, :, i]) for array in (draws.table, draws.mask1, draws.mask2))
    scale1, scale2 = stream.scales.uniform(*SCALES, 2).tolist() if scales else (1.0, 1.0)
    return GameState(table, mask1, mask2, scale1, scale2, optimum, roster)
