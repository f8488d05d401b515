"""Duration of a rollout with many dialogues in flight, compared with the ideal: the sum of the slowest dialogue's latencies.

    SLIME_DIR=... python benchmarks/bench_slime_makespan.py [--dialogues 512] [--scale 1.0]

Partner latencies are log-normal with a median of 1.5 s and a long tail (sigma 0.7: one in twenty above 4.7 s); the engine's are 0.8 s. All
dialogues start at once; nothing but the hook and this machine's processor can add to the ideal. --scale 0.1 makes every latency a tenth, and so the processor weigh ten times as much.
"""

import argparse
import asyncio
import math
import random
import resource
import tempfile
import time
from argparse import Namespace

import slime_bench as bench

from slim_rl.environment import View
from slim_rl.rollout import generate
from tests.backends.slime_setup import Sample, sampling_params

MEDIAN, SIGMA = 1.5, 0.7  # seconds that the partner thinks, and the spread of their logarithm
ENGINE = 0.8  # seconds of an engine's turn


async def rollout(args: Namespace, samples: list[Sample]) -> tuple[float, float]:
    """Returns wall seconds and processor seconds of all dialogues."""
    wall, processor = time.monotonic(), time.process_time()
    await asyncio.gather(*(generate(args, sample, sampling_params(args)) for sample in samples))
    return time.monotonic() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dialogues", type=int, default=512)
    parser.add_argument("--turns", type=int, default=8, help="policy turns per dialogue")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    thought: dict[int, float] = {}

    async def think(view: View) -> None:
        spread = math.exp(SIGMA * random.Random(f"{view.seed}/{len(view.history)}").gauss(0, 1))
        seconds = options.scale * MEDIAN * spread
        thought[view.seed] = thought.get(view.seed, 0.0) + seconds
        await asyncio.sleep(seconds)

    tokenizer = bench.make_tokenizer()
    with (
        tempfile.TemporaryDirectory() as folder,
        bench.engine(tokenizer, options.turns, options.scale * ENGINE) as port,
    ):
        tokenizer.save_pretrained(folder)
        args = bench.arguments(folder, port)
        samples = bench.samples(options.dialogues)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wall, processor = bench.run(args, bench.Yes(think), rollout(args, samples))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ideal = max(thought.values()) + options.turns * options.scale * ENGINE
    print(
        f"{options.dialogues} dialogues of {options.turns} policy turns, latencies × {options.scale}: {wall:.2f} s, ideal "
        f"{ideal:.2f} s ({100 * (wall / ideal - 1):+.1f}%); {processor:.1f} s of processor time, {grown / 1024:.0f} MiB more at "
        f"the peak"
    )


if __name__ == "__main__":
    main()
