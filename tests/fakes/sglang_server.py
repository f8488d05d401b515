"""SGLang's `/generate` protocol on loopback, as far as a rollout meets it, with nothing random but what a seed decides.

What a real server (0.5.15) does and a policy can trip over is done here too: limits on lengths answered with 400, a prefix cache
that counts `cached_tokens`, abort of everything in flight, weight updates that change `weight_version`, replay data for top-p
sets and routed experts. Faults are drawn per request from its own input, so that they do not depend on the order of arrival.
"""

import asyncio
import base64
import random
import struct
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from aiohttp import web

from tests.fakes.serving import Server

Speak = Callable[[list[int], random.Random], list[int]]  # input ids -> the turn as token ids, its end token included

KNOWN = {
    *("temperature", "top_p", "top_k", "min_p", "max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "n"),
    *("skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens", "repetition_penalty", "custom_params"),
    *("sampling_seed", "ignore_eos"),
}


@dataclass
class Faults:
    """Shares of requests that go wrong. A request made again is drawn again, unless `stubborn`."""

    error: float = 0.0  # status 500
    abort: float = 0.0  # finish reason abort, a part of the turn returned
    garbage: float = 0.0  # an answer that is not a turn
    stubborn: bool = False


@dataclass
class SGLangServer(Server):
    """See the module's docstring.

    Args:
        speak: what the model says.
        delay: seconds a turn takes.
        hold: requests, numbered from 1, that take until they are aborted.
        context_length: the longest input and output together.
        model: what it says it serves; "" has it not tell, as a router.
        broken: the model's weights are no numbers: its logprobs are NaN, which its JSON writes as null.

    Attributes:
        requests: every `/generate` body, with its routing key, if `keep`.
        aborts: calls of `/abort_request`.
        busiest: most turns in flight at once, where a turn takes time.
    """

    speak: Speak
    delay: float | Callable[[random.Random], float] = 0.0
    hold: Collection[int] = ()
    context_length: int = 16384
    model: str = ""
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    layers: int = 2
    experts: int = 2
    prefix_cache: bool = True
    keep: bool = True
    broken: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    aborts: int = 0
    busiest: int = 0
    weight_version: str = "0"

    def __post_init__(self) -> None:
        self._running: dict[str, asyncio.Event] = {}
        self._received = 0
        self._tries: Counter[int] = Counter()
        self._cached: dict[str, list[int]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def received(self, requests: int) -> None:
        """Waits until so many `/generate` requests have come; on the caller's loop."""
        while self._received < requests:  # noqa: ASYNC110  (an event would belong to the server's loop)
            await asyncio.sleep(0.005)

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post("/update_weights_from_disk", self._update_weights)
        app.router.add_get("/workers", self._workers)
        app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids, params = body["input_ids"], body["sampling_params"]
        self._received += 1
        number = self._received
        if self.keep:
            self.requests.append({**body, "key": request.headers.get("X-SMG-Routing-Key")})
        most = params.get("max_new_tokens", 128)
        if unknown := set(params) - KNOWN:
            return web.json_response({"error": {"message": f"unexpected parameters {sorted(unknown)}"}}, status=500)
        if len(ids) + most > self.context_length or most < (0 if "logprob_start_len" in body else 1):
            message = f"Requested {len(ids)} input and {most} new tokens of a context of {self.context_length}."
            return web.json_response({"error": {"message": message}}, status=400)

        rng, lot = self._draw(ids, params.get("sampling_seed"))
        faults = self.faults
        if lot < faults.error:
            return web.json_response({"error": {"message": "CUDA error"}}, status=500)
        if lot < faults.error + faults.garbage:
            return web.json_response({"detail": "what?"})
        aborted = lot < faults.error + faults.garbage + faults.abort
        said = self.speak(ids, rng) if most else []
        finish: dict[str, Any] = {"type": "stop", "matched": said[-1] if said else None}
        if len(said) >= most:  # as SGLang, which looks for the end token after that
            said, finish = said[:most], {"type": "length", "length": most}
        delay = self.delay(rng) if callable(self.delay) else self.delay
        if number in self.hold:
            delay = 3600.0
        if await self._take_time(delay) or aborted:
            said, finish = said[: len(said) // 2], {"type": "abort", "message": "Aborted"}
        answer = self._answer(body, said, finish, rng)
        answer["meta_info"]["e2e_latency"] = delay
        return web.json_response(answer)

    def _draw(self, ids: list[int], seed: int | None = None) -> tuple[random.Random, float]:
        """The request's own numbers, and the lot of its fault. With a seed, the same input is continued alike every time."""
        name = zlib.crc32(struct.pack(f"{len(ids)}i", *ids))
        tries = self._tries[name]
        self._tries[name] += 1
        lot = random.Random(f"{self.seed}/{name}/{0 if self.faults.stubborn else tries}/fault").random()
        return random.Random(f"{self.seed}/{name}/{tries if seed is None else f'seed {seed}'}"), lot

    async def _take_time(self, delay: float) -> bool:
        """Whether the turn was aborted meanwhile."""
        if not delay:
            return False
        name, stop = uuid.uuid4().hex, asyncio.Event()
        self._running[name] = stop
        self.busiest = max(self.busiest, len(self._running))
        try:
            await asyncio.wait_for(stop.wait(), delay)
            return True
        except TimeoutError:
            return False
        finally:
            del self._running[name]

    def _answer(
        self, body: dict[str, Any], said: list[int], finish: dict[str, Any], rng: random.Random
    ) -> dict[str, Any]:
        ids = body["input_ids"]
        logprobs = [None if self.broken else -rng.random() * 3 for _ in said]
        meta: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "finish_reason": finish,
            "prompt_tokens": len(ids),
            "completion_tokens": len(said),
            "cached_tokens": self._cache(ids, said) if self.prefix_cache else 0,
            "weight_version": self.weight_version,
            "input_token_logprobs": self._scored(ids[body.get("logprob_start_len", len(ids)) :], rng),
            "output_token_logprobs": [[lp, token, None] for lp, token in zip(logprobs, said, strict=True)],
        }
        if (body["sampling_params"].get("custom_params") or {}).get("return_top_p_token_ids"):
            sets = [[token, token + 1] for token in said]
            meta["top_p_token_ids"] = _base64(token for kept in sets for token in kept)
            meta["top_p_token_offsets"] = _base64(range(0, 2 * len(said) + 1, 2))
        if body.get("return_routed_experts"):
            rows = len(ids) + len(said) - 1
            meta["routed_experts"] = _base64(one for _ in range(rows * self.layers) for one in range(self.experts))
        return {"text": "".join(f"<{token}>" for token in said), "output_ids": said, "meta_info": meta}

    def _scored(self, ids: list[int], rng: random.Random) -> list[list[Any]]:
        """The logprobs of input tokens. The first has none: what it follows was not asked about."""
        return [[-rng.random() * 3 if place else None, token, None] for place, token in enumerate(ids)]

    def _cache(self, ids: list[int], said: list[int]) -> int:
        """Tokens of the input that were seen before. One dialogue extends one entry, found by how it begins."""
        begins = zlib.crc32(struct.pack(f"{len(ids[:64])}i", *ids[:64]))
        entries = [entry for name, entry in self._cached.items() if name.startswith(f"{begins}/")]
        shared = max((_shared(entry, ids) for entry in entries), default=0)
        self._cached[f"{begins}/{len(self._cached)}"] = [*ids, *said]
        return min(shared, len(ids) - 1)

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborts += 1
        for stop in list(self._running.values()):
            stop.set()
        return web.json_response({})

    async def _update_weights(self, request: web.Request) -> web.Response:
        await self._abort(request)
        self.weight_version = (await request.json())["weight_version"]
        self._cached.clear()
        return web.json_response({"success": True, "message": "", "num_paused_requests": 0})

    async def _workers(self, request: web.Request) -> web.Response:
        return web.json_response({"workers": [{"url": self.url}]})

    async def _models(self, request: web.Request) -> web.Response:
        if not self.model:
            raise web.HTTPNotFound
        card = {"id": self.model, "object": "model", "root": self.model, "max_model_len": self.context_length}
        return web.json_response({"object": "list", "data": [card]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _loads(self, request: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_running_reqs": len(self._running), "num_waiting_reqs": 0}]})


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the beginning that both have."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _base64(values: Any) -> str:
    numbers = list(values)
    return base64.b64encode(struct.pack(f"<{len(numbers)}i", *numbers)).decode()
