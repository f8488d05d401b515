"""The slime hook's own processor time per policy turn, beside slime's stock single-turn `generate` on the same instant engine; how it
grows with the number of turns; and the memory of a dialogue in flight.

    SLIME_DIR=... python benchmarks/bench_slime_hook.py [--turns 4 8 16 32] [--dialogues 64] [--rounds 3]

Processor time is this process's alone; the engine runs in another. Stock `generate` is given the game's opening prompt, so its
requests are as long as a dialogue's first. What a longer request costs in any case, to be written as JSON, is shown beside it:
stock `generate` on a prompt as long as the dialogue's mean input.
"""

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from argparse import Namespace
from typing import Any

import slime_bench as bench
from slime.rollout import sglang_rollout as stock

from slim_rl.rollout import generate
from tests.backends.slime_setup import Sample, sampling_params


async def play(args: Namespace, samples: list[Sample]) -> tuple[float, float, float]:
    """Returns processor seconds per policy turn, mean input tokens per turn, and turns per dialogue."""
    gc.collect()
    start = time.process_time()
    await asyncio.gather(*(generate(args, sample, sampling_params(args)) for sample in samples))
    seconds = time.process_time() - start
    assert {sample.status for sample in samples} == {Sample.Status.COMPLETED}
    turns = sum(len(sample.weight_versions) for sample in samples)
    tokens = sum(sample.prefix_cache_info.total_prompt_tokens for sample in samples)
    return seconds / turns, tokens / turns, turns / len(samples)


async def single_turns(args: Namespace, prompts: list[str], in_flight: int) -> float:
    """Returns processor seconds per turn of slime's own `generate`."""
    samples = [Sample(prompt=prompt, index=i, session_id=f"s{i}") for i, prompt in enumerate(prompts)]
    gate = asyncio.Semaphore(in_flight)

    async def one(sample: Sample) -> None:
        async with gate:
            await stock.generate(args, sample, sampling_params(args))

    gc.collect()
    start = time.process_time()
    await asyncio.gather(*map(one, samples))
    return (time.process_time() - start) / len(samples)


async def memory(args: Namespace, partner: bench.Yes, samples: list[Sample], at_turn: int) -> float:
    """Returns bytes per dialogue that waits for its partner's reply number `at_turn`."""
    go, waiting = asyncio.Event(), 0

    async def think(view: Any) -> None:
        nonlocal waiting
        if len(view.history) == 2 * at_turn - 1:
            waiting += 1
            await go.wait()

    partner.think = think
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.create_task(generate(args, sample, sampling_params(args))) for sample in samples]
    while waiting < len(samples):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    go.set()
    await asyncio.gather(*tasks)
    return taken / len(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, nargs="+", default=[4, 8, 16, 32], help="policy turns per dialogue")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts")
    options = parser.parse_args()
    tokenizer = bench.make_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for turns in options.turns:
            with bench.engine(tokenizer, turns) as port:
                args = bench.arguments(folder, port)
                rounds = range(options.rounds + 1)  # the first one warms up
                played = [bench.run(args, bench.Yes(), play(args, bench.samples(options.dialogues))) for _ in rounds][
                    1:
                ]
                seconds, tokens, number = min(played)
                opening = tokenizer.apply_chat_template(
                    bench.samples(1)[0].prompt, tokenize=False, add_generation_prompt=True
                )
                length = len(tokenizer.encode(opening, add_special_tokens=False))
                count = options.dialogues * turns
                base = min(
                    bench.run(args, bench.Yes(), single_turns(args, [opening] * count, options.dialogues))
                    for _ in rounds
                )
                long = opening * round(tokens / length) if tokens > 1.5 * length else opening
                same = min(
                    bench.run(args, bench.Yes(), single_turns(args, [long] * count, options.dialogues)) for _ in rounds
                )
            print(
                f"{number:4.0f} turns: hook {1e3 * seconds:.2f} ms per turn ({tokens:.0f} input tokens); "
                f"stock {1e3 * base:.2f} ms ({length} tokens), ratio {seconds / base:.2f}; "
                f"stock at the same length {1e3 * same:.2f} ms, ratio {seconds / same:.2f}",
                flush=True,
            )
        with bench.engine(tokenizer, 12) as port:
            args, partner = bench.arguments(folder, port), bench.Yes()
            for at_turn in (1, 5, 10):
                taken = bench.run(args, partner, memory(args, partner, bench.samples(options.dialogues), at_turn))
                print(f"in flight at turn {at_turn:2}: {taken / 1024:.0f} KiB per dialogue", flush=True)


if __name__ == "__main__":
    main()
