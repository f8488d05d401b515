"""The tests' chat endpoint with faults and odd answers drawn at random, for `soak_partner.py`.

    python benchmarks/soak_server.py --fault-rate 0.2      prints its URL, and serves its tallies at /tally

Each draw depends on the seed, the request and how often it came alone, not on the order of arrival.
"""

import argparse
import asyncio
import hashlib
import json
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fakes.openai_server import HALF, ODD_USAGE, OpenAIServer, Step

# Faults, and answers that a client must take: half a character in the text, no usage, a senseless usage.
FAULTS = ("429", "500", "503", "cut", "cut_midway", "junk", "html", "empty", "hang", "huge", "gzip", "deep")
ODD = ("poisoned", "no_usage", "odd_usage")
BODIES = {"html": "<html><body>Bad gateway</body></html>", "empty": '{"choices": []}'}  # of status 200


class SoakServer(OpenAIServer):
    """`options`: fault_rate, odd_rate, latency (median seconds), spread (of its logarithm), revoked (after, for seconds), seed."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options, self.refused, self.began = options, 0, time.monotonic()
        self.tries: Counter[str] = Counter()
        self.tally: dict[str, Counter[str]] = {}

    def step(self, body: dict[str, Any]) -> Step:
        """Draws what the request meets, and counts it and what the client is bound to wait for in its game."""
        self.requests.clear()  # there are very many
        for noted in (self.headers, self.queries, self.times):
            noted.clear()
        if not self.tries:
            self.began = time.monotonic()
        after, seconds = self.options.revoked
        if after <= time.monotonic() - self.began < after + seconds:
            self.refused += 1
            return Step("status", status=401, code="invalid_api_key", message="The key was revoked.")
        kind, step = self.draw(json.dumps(body, sort_keys=True).encode())
        tally: Any = self.tally.setdefault(str(body.get("seed")), Counter())
        tally.update({kind: 1, "seconds": step.seconds, "retry_after": float(step.retry_after or 0.0)})
        return step

    def draw(self, request: bytes) -> tuple[str, Step]:
        name, given = hashlib.sha256(request).hexdigest(), self.options
        self.tries[name] += 1
        rng = random.Random(f"{given.seed} {name} {self.tries[name]}")
        seconds = given.latency * math.exp(given.spread * rng.gauss(0, 1))
        if rng.random() >= given.fault_rate:
            if rng.random() >= given.odd_rate:
                return "answer", Step(seconds=seconds)
            kind = rng.choice(ODD)
            if kind == "poisoned":
                return kind, Step(seconds=seconds, text=f"[message] Hard to say {HALF}.")
            return kind, Step(seconds=seconds, usage=rng.choice(ODD_USAGE) if kind == "odd_usage" else None)
        kind = rng.choice(FAULTS)
        if kind == "429":
            return kind, Step("status", status=429, code="rate_limit_exceeded", message="Rate limit.", retry_after=0.5)
        if kind.isdigit() or kind in BODIES:
            return kind, Step(
                "status", seconds=seconds, status=int(kind) if kind.isdigit() else 200, body=BODIES.get(kind)
            )
        return kind, Step(kind, seconds=0.0 if kind == "hang" else seconds, size=3_000_000)

    def routes(self, app: web.Application) -> None:
        super().routes(app)
        app.router.add_get("/tally", self._tally)

    async def _tally(self, request: web.Request) -> web.Response:
        return web.json_response({"busiest": self.busiest, "games": self.tally, "refused": self.refused})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--revoked", type=float, nargs=2, default=(0.0, 0.0))
    for name in ("fault-rate", "odd-rate", "latency", "spread"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    server = SoakServer(parser.parse_args())
    await server.start()
    print(server.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
