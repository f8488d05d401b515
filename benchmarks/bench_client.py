"""Processor time per call to the partner's endpoint, with the openai client's POST (as used) and with its typed method.

    python benchmarks/bench_client.py [--calls 3000] [--rounds 2]

The server runs on loopback in a separate process. Both ways alternate, with 256 calls in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from slim_rl.config import OpenAIConfig  # noqa: E402
from slim_rl.partners.answers import read_answer  # noqa: E402
from slim_rl.partners.client import address_of, make_client  # noqa: E402
from slim_rl.partners.secrets import Secrets  # noqa: E402

IN_FLIGHT, LATENCY = 256, 2.5  # of a run; seconds
WARM = 256  # calls before the clock runs
EXCHANGE = [
    {"role": "assistant", "content": "[message] Ava Li on BLEU: 60."},
    {"role": "user", "content": "> [message] And what do you have for Daniel Nguyen on Electra?"},
]


def request(number: int) -> dict[str, Any]:
    """Returns a request as long as one in the middle of an 8×8 game."""
    opening = [{"role": "system", "content": "rules " * 800}, {"role": "user", "content": "table " * 200}]
    model = OpenAIConfig().model
    return {"model": model, "temperature": 0.0, "max_tokens": 300, "messages": opening + 3 * EXCHANGE, "seed": number}


async def seconds_a_call(url: str, typed: bool, calls: int) -> float:
    config = OpenAIConfig(base_url=url)
    client, slots, secrets = make_client(address_of(config), config), asyncio.Semaphore(IN_FLIGHT), Secrets()

    async def post(body: dict[str, Any]) -> None:
        read_answer(await client.post("/chat/completions", body=body, cast_to=str), body, config, secrets)

    async def create(body: dict[str, Any]) -> None:
        answer = await client.chat.completions.create(**body)
        assert answer.choices[0].message.content is not None and answer.usage is not None

    async def one(way: Callable[[dict[str, Any]], Awaitable[None]], number: int) -> None:
        async with slots:
            await way(request(number))

    way = create if typed else post
    async with client:
        await asyncio.gather(*(one(way, number) for number in range(WARM)))
        begun = time.process_time()
        await asyncio.gather(*(one(way, number) for number in range(calls)))
        return (time.process_time() - begun) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    command = [sys.executable, "-m", "tests.fakes.openai_server", "--latency", "0.3"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        rounds = [
            [asyncio.run(seconds_a_call(url, typed, options.calls)) for typed in (False, True)]
            for _ in range(options.rounds)
        ]
    finally:
        server.kill()
        server.wait()
    post, create = (min(column) for column in zip(*rounds, strict=True))
    for name, seconds in (("client.post", post), ("chat.completions.create", create)):
        cores = seconds * IN_FLIGHT / LATENCY
        print(
            f"{name:<24} {1000 * seconds:.2f} ms per call; {cores:.2f} of a core with {IN_FLIGHT} of {LATENCY} s in flight"
        )
    print(f"ratio {create / post:.1f}")


if __name__ == "__main__":
    main()
