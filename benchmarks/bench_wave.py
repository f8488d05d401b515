"""Wave sampling against one generate call per turn: the same dialogues, the same model, alternating in one process.

python benchmarks/bench_wave.py [--model data/warmstart] [--dialogues 64] [--rounds 3]
"""

import argparse
import asyncio
import statistics
import time

from small_games import small_games


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/warmstart")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    played = small_games(options.model, options.dialogues)

    def tokens_per_second(max_live: int | None, seed: int) -> float:
        policy = played.policy(seed)
        start = time.perf_counter()
        asyncio.run(played.worker.play_all(played.specs, policy=lambda spec: policy, max_live=max_live))
        return policy.tokens_sampled / (time.perf_counter() - start)

    rates = [(tokens_per_second(None, r), tokens_per_second(1, r)) for r in range(options.rounds)]
    wave, single = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{options.dialogues} dialogues, median of {options.rounds} alternating rounds")
    print(f"wave: {wave:.0f} tokens/s   one generate call per turn: {single:.0f} tokens/s   ratio: {wave / single:.1f}")


if __name__ == "__main__":
    main()
