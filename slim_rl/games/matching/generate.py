"""Instances from DialOp's distribution: game i is the first draw of its random stream that is hard enough.

It depends on (seed, i) and the config alone. With DialOp's hardness one draw in some 3,000 is kept, and a game takes 12 ms; without, 0.5 ms.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slim_rl.errors import ConfigError
from slim_rl.games.matching.roster import PAPERS, REVIEWERS, Roster
from slim_rl.games.matching.state import (
    UNSEEN_VALUE,
    GameState,
    MatchingSettings,
    best_assignment,
    lowest_score_of_best,
    rows_of,
    scores_by,
)
from slim_rl.processes import check_processes, environment

VALUES = 100  # scores are 0..99
SCALES = (1.0, 10.0)
MAX_DRAWS = 2**19  # for one game; a config that keeps one draw in 50,000 or more practically never gets there
_BLOCK = 256  # draws a game's stream yields at a time


def generate_games(
    num: int, config: MatchingSettings, seed: int = 0, workers: int = 1, start: int = 0
) -> Iterator[GameState]:
    """Games number `start` to `start + num - 1` of a seed, in order.

    Raises:
        ConfigError: no draw in MAX_DRAWS is hard enough.
    """
    deal, indices = partial(_deal, config, seed), range(start, start + num)
    if workers <= 1:
        yield from map(deal, indices)
        return
    check_processes(workers, "--workers")
    safe = environment({"PYTHONSAFEPATH": "1"})  # its processes import nothing from the working folder
    with safe, ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield from pool.map(deal, indices, chunksize=max(1, min(256, num // (4 * workers))))
        finally:
            pool.shutdown(cancel_futures=True)


def board_for(config: MatchingSettings, rng: np.random.Generator) -> tuple[MatchingSettings, Roster]:
    """Returns the settings of one game, its n drawn if the config names several, and its names."""
    if config.sizes:
        config = config.changed(n=int(rng.choice(config.sizes)), sizes=())
    reviewers, papers = config.reviewers or REVIEWERS, config.papers or PAPERS
    if config.names == "random":
        reviewers, papers = (tuple(names[i] for i in rng.permutation(len(names))) for names in (reviewers, papers))
    return config, Roster(reviewers[: config.n], papers[: config.n])


def _deal(config: MatchingSettings, seed: int, index: int) -> GameState:
    """Returns game `index`. Sizes, names and scales have their own streams, independent of the number of draws."""
    config, roster = board_for(config, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index, 2))))
    cells, scales = map(np.random.default_rng, np.random.SeedSequence(seed, spawn_key=(index,)).spawn(2))
    chances = (config.p_observed, config.p_observed if config.p_observed_2 is None else config.p_observed_2)
    thresholds = np.array([max(1, round(p * 2**32)) - 1 for p in chances], np.uint32).reshape(2, 1, 1, 1)
    shape = (config.n, config.n, _BLOCK)
    for _ in range(MAX_DRAWS // _BLOCK):
        drawn = cells.integers(0, VALUES, shape, dtype=np.uint16)
        bits = cells.bit_generator.random_raw(config.n * config.n * _BLOCK).view(np.uint32)
        masks = bits.reshape(2, *shape) <= thresholds
        if (kept := _first_hard(drawn.astype(np.int16), masks, config.hardness)) is not None:
            table, (mask1, mask2), best = kept
            scale1, scale2 = scales.uniform(*SCALES, 2).tolist() if config.scales else (1.0, 1.0)
            return GameState(rows_of(table), rows_of(mask1), rows_of(mask2), scale1, scale2, best, roster)
    raise ConfigError(
        f"None of {MAX_DRAWS:,} draws with n = {config.n} and p_observed = {config.p_observed} has an optimum "
        f"above {config.hardness} times either player's solo plan: lower game.hardness or change game.p_observed."
    )


def _first_hard(
    scores: NDArray[np.int16], masks: NDArray[np.bool_], hardness: float
) -> tuple[NDArray[np.int16], NDArray[np.bool_], int] | None:
    """Returns the first draw whose optimum exceeds both solo plans by more than `hardness`: its table, masks and optimum.

    Plans are solved as DialOp solves them. Bounds, of the optimum from above and of a solo plan from below, leave most draws out.

    Args:
        scores: (n, n, draws).
        masks: (2, n, n, draws), what each seat sees.
    """
    tables, believed = _known(scores, masks[0] | masks[1]), _known(scores, masks)
    ceilings = np.minimum(tables.max(axis=0).sum(axis=0), tables.max(axis=1).sum(axis=0))
    solo, rest = np.zeros(len(ceilings)), np.arange(len(ceilings))
    if hardness:  # at 0 every draw is hard enough
        solo += lowest_score_of_best(believed[0], tables)
        rest = rest[solo * hardness < ceilings]
        others, true = (np.moveaxis(values.take(rest, axis=-1), -1, 0) for values in (believed[1], tables))
        solo[rest] = np.maximum(solo[rest], scores_by(others, true))
        rest = rest[solo[rest] * hardness < ceilings[rest]]
    for i in rest.tolist():
        table, best = tables[..., i], int(best_assignment(tables[..., i])[1])
        if solo[i] * hardness < best and scores_by(believed[:1, ..., i], table[None])[0] * hardness < best:
            return table, masks[..., i], best
    return None


def _known(scores: NDArray[np.int16], mask: NDArray[np.bool_]) -> NDArray[np.int16]:
    """Returns the scores, with unseen cells at their expectation; without a choice per cell, which costs ten times as much."""
    return (scores - np.int16(UNSEEN_VALUE)) * mask + np.int16(UNSEEN_VALUE)
