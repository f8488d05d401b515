"""Games per second of `generate_games`, compared with a plain loop like DialOp's generator, on one core.

    python benchmarks/bench_generate.py [--n 8] [--seconds 30]

Both are timed in turns and by processor time, so that other work on the machine weighs on neither.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.state import MatchingSettings

ROUND = 2.0  # seconds


def plain_draws(config: MatchingSettings, rng: np.random.Generator) -> Iterator[bool]:
    """DialOp's procedure: one draw after the other, three assignments each; yields True if the game is kept."""

    def score(known: np.ndarray) -> int:
        expected = -table * known - 50.0 * (1 - known)
        rows, columns = linear_sum_assignment(expected)
        return sum([table[r][c] for r, c in zip(rows, columns, strict=True)]).item()

    n, p = config.n, config.p_observed
    while True:
        table = rng.integers(0, 100, (n, n))
        known1 = rng.choice(2, (n, n), p=[1 - p, p])
        known2 = rng.choice(2, (n, n), p=[1 - p, p])
        table[np.logical_not(known1) & np.logical_not(known2)] = 50
        best, solo1, solo2 = score(np.logical_or(known1, known2)), score(known1), score(known2)
        yield solo1 * config.hardness < best and solo2 * config.hardness < best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30, help="how long each of the two runs")
    options = parser.parse_args()
    config = MatchingSettings(n=options.n)

    fast, plain = generate_games(10**6, config), plain_draws(config, np.random.default_rng(0))
    games = draws = kept = 0
    fast_time = plain_time = 0.0
    while plain_time < options.seconds:
        start = time.process_time()
        while (spent := time.process_time() - start) < ROUND:
            next(fast)
            games += 1
        fast_time += spent
        start = time.process_time()
        while (spent := time.process_time() - start) < ROUND:
            kept += next(plain)
            draws += 1
        plain_time += spent

    print(f"n = {config.n}, one core")
    print(f"generate_games  {games / fast_time:8.1f} games/s  ({games} games)")
    print(
        f"plain loop      {kept / plain_time:8.1f} games/s  ({draws / plain_time:,.0f} draws/s, {kept} of {draws:,} kept)"
    )
    if kept:
        ratio = games / fast_time / (kept / plain_time)
        print(f"ratio           {ratio:8.1f}  (give or take {ratio * (1 / kept + 1 / games) ** 0.5:.1f} by chance)")


if __name__ == "__main__":
    main()
