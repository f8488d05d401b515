"""OpenAI-compatible endpoint, shared by all dialogues of the process.

Invariants:
    Every request gets a `Completion` or a `PartnerFailure`. An answer in the cassette is not asked for again.
    A failed request is repeated according to the table of `faults`, with jittered exponential backoff or after Retry-After.
    All calls wait together for an endpoint that is down, and one warning reports it (`breaker`).

The openai client's typed method takes 2.7 times the processor time of its bare POST (benchmarks/bench_client.py). Its retries do not know
the other calls: with them a soak of 1,500 dialogues (benchmarks/soak_partner.py) took 1.064 of the ideal makespan instead of 1.036, and
sent 47 requests instead of 6 while the key was refused. So neither is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import resource
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from slim_rl.config import LEAST_CONCURRENCY, OpenAIConfig
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
from slim_rl.event_loops import PerLoop
from slim_rl.partners.answers import count_tokens, cut, guess_input, read_answer
from slim_rl.partners.breaker import Breaker
from slim_rl.partners.cassette import Cassette, request_key
from slim_rl.partners.client import address_of, make_client
from slim_rl.partners.dialect import Dialect
from slim_rl.partners.faults import Fault, fault_of
from slim_rl.partners.limiter import RateLimit
from slim_rl.partners.secrets import Secrets
from slim_rl.partners.spend import Spend

log = logging.getLogger("slim_rl.partners")

REPLY_TOKENS = 60  # tokens of a typical reply, for the rate limit


@dataclass(frozen=True, slots=True)
class Completion:
    """Answered request.

    Attributes:
        text: the first choice's content; "" if it has none.
        finish_reason: in OpenAI's terms: stop, length, content_filter, tool_calls.
        usage: what the call took, failed requests included; all zero from a cassette.
        thought, refusal: the model's thought, and why it refused, if its server returns them apart from the text.
    """

    text: str
    finish_reason: str
    usage: Usage
    thought: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class _Loop:
    """Client and limits of one event loop."""

    client: Any
    slots: asyncio.Semaphore
    probing: asyncio.Lock  # one call at a time asks an endpoint that is down
    requests: RateLimit
    tokens: RateLimit


class Endpoint:
    """See the module's docstring. Raises ConfigError for settings that cannot work (no key, no price, no cassette)."""

    def __init__(self, config: OpenAIConfig) -> None:
        if config.budget_usd is not None and config.price is None:
            raise ConfigError(
                f"partner.openai.budget_usd is set, but partner.openai.prices has no entry for {config.model!r}. Add its price."
            )
        self.config, self.replays = config, config.cassette_mode == "replay"
        self.address = address_of(config, called=not self.replays)
        self.url, self.secrets = self.address.url, Secrets(self.address.key, *self.address.headers.values())
        self.spend, self.dialect = Spend(config.budget_usd), Dialect()
        self.cassette = Cassette(config.cassette, config.cassette_mode) if config.cassette else None
        if self.replays and self.cassette is None:
            raise ConfigError(
                "partner.openai.cassette_mode is replay, but there is no file. Set partner.openai.cassette."
            )
        self.breaker = Breaker(self.url, config)
        self.warned: dict[str, str] = {}  # topic -> the sentence that `warn_once` has logged
        self._loops = PerLoop(self._make, lambda here: here.client.close())
        self._random = random.Random()  # for waits alone

    @property
    def stopped(self) -> str | None:
        """Sentence that says why no new game should start (no more calls, or a full disk), or None."""
        full = self.cassette.trouble if self.cassette is not None else None
        return self.breaker.stopped or self.spend.refusal() or full

    @property
    def identity(self) -> dict[str, Any]:
        """Endpoint, model, effective request parameters, and the names of the parameters that the model refuses."""
        request = {"seed": None} | self.dialect.fit(
            self.parameters() | {"seed": "dialogue" if self.config.send_seed else None}
        )
        refused = {"refused": sorted(self.dialect.refused)} if self.dialect.refused else {}
        return {"base_url": self.url, "model": self.config.model, "request": request, **refused}

    def parameters(self) -> dict[str, Any]:
        """Returns the config's request parameters, without the messages and the seed."""
        names = ("temperature", "top_p", "max_tokens", "reasoning_effort")
        chosen = {name: getattr(self.config, name) for name in names if getattr(self.config, name) is not None}
        return {"model": self.config.model, **chosen, **self.config.extra}

    def warn_once(self, sentence: str, topic: str = "") -> None:
        """Logs a warning; the same sentence, or the same `topic`, only once."""
        if (topic or sentence) not in self.warned:
            self.warned[topic or sentence] = sentence
            log.warning(sentence)

    async def ask(self, messages: list[dict[str, str]], seed: int) -> Completion:
        """Returns the model's answer to `messages`. Raises PartnerFailure if all retries fail.

        Args:
            seed: seed of the dialogue; sent with the request, and part of its address in the cassette.
        """
        # The request as the config asks for it, which is its form in the cassette.
        body = {**self.parameters(), "messages": messages, **({"seed": seed} if self.config.send_seed else {})}
        try:
            answer, usage = await self._answer(body, seed)
        except DataError as error:
            self.warn_once(str(error))
            raise PartnerFailure(str(error)) from None
        if not answer["text"].strip() and answer.get("finish_reason") == "length":
            self.warn_once(
                f"{self.config.model} uses all of partner.openai.max_tokens={self.config.max_tokens} for thoughts. Raise it, or "
                "set partner.openai.reasoning_effort=low."
            )
        text = cut(answer["text"], answer.get("finish_reason") or "stop", self.config)
        return Completion(**text, usage=usage, thought=answer.get("thought"), refusal=answer.get("refusal"))

    async def _answer(self, body: dict[str, Any], seed: int) -> tuple[dict[str, Any], Usage]:
        """Returns the cassette's answer, asked for if it has none."""
        if self.cassette is None:
            return await self._ask_until_answered(body)
        key = request_key(body, seed)
        self.cassette.flush()
        if (recorded := self.cassette.get(key)) is not None:
            self.dialect.recall(recorded.get("refused") or ())
            return recorded, Usage(model=recorded.get("model"))
        if self.replays:
            raise PartnerFailure(
                f"The cassette {self.cassette.path} has no answer to request {key}. Record it with cassette_mode=auto."
            )
        answer, usage = await self._ask_until_answered(body)
        return self.cassette.keep(key, body, seed, answer), usage

    async def _ask_until_answered(self, body: dict[str, Any]) -> tuple[dict[str, Any], Usage]:
        """Returns an answer and what the call took. Raises PartnerFailure."""
        config, call = self.config, object()
        left, faults, usage = config.turn_seconds, 0, Usage()
        while True:
            # Queueing is not the endpoint's slowness: only what follows counts against the turn.
            async with self._admitted(body) as client:
                started, sent = time.monotonic(), self.dialect.fit(body)
                outcome = await self._request(client, sent, min(config.request_seconds, left))
                seconds = time.monotonic() - started
                usage += self._count(outcome, body)
                if not isinstance(outcome, Fault):
                    self.breaker.alive(started, answered=True)
                    if remark := self.dialect.remark(config.model):
                        self.warn_once(remark)
                    refused = [name for name in body if name not in sent]
                    return outcome | ({"refused": refused} if refused else {}), usage
                self._report(outcome, call, started)
            if outcome.kind == "parameter":
                self.dialect.recall(outcome.parameters)
                continue
            if outcome.kind in ("own", "request"):
                what = "could not be made" if outcome.kind == "own" else "was refused"
                raise PartnerFailure(f"The request to {self.url} {what}: {outcome.why}", usage=usage)
            self.spend.add(Usage(retries=1))
            usage += Usage(retries=1)
            faults += outcome.kind != "busy"  # an endpoint that asks to wait gets all the time of the turn
            if self.breaker.is_open or self.breaker.stopped:
                continue  # the time of an outage is not the turn's
            wait = self._backoff(usage.retries, outcome)
            left -= seconds + wait
            if faults > config.max_retries or left <= 0:
                limit = f"{usage.retries} tries" if left > 0 else f"{config.turn_seconds:g} s"
                raise PartnerFailure(f"No reply from {self.url} in {limit}; the last one: {outcome.why}", usage=usage)
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _admitted(self, body: dict[str, Any]) -> AsyncIterator[Any]:
        """Yields the client once a slot, the endpoint and the rate limits are free. Raises PartnerFailure if calls have stopped."""
        here = await self._loops.here()
        async with here.slots, contextlib.AsyncExitStack() as stack:
            if self.breaker.is_open:  # one call at a time asks, first come, first served
                await stack.enter_async_context(here.probing)
                while (wait := self.breaker.wait()) > 0:  # noqa: ASYNC110 - an event would belong to one loop
                    await asyncio.sleep(wait)
                if not self.breaker.is_open:
                    await stack.aclose()
            await here.requests.take()
            await here.tokens.take(guess_input(body) + REPLY_TOKENS)
            if self.breaker.stopped:
                raise PartnerFailure(self.breaker.stopped, StopReason.OUTAGE)
            if refusal := self.spend.refusal():
                self.warn_once(refusal, "budget")
                # Without a budget it is the disk that stops the run.
                reason = StopReason.OUTAGE if self.config.budget_usd is None else StopReason.BUDGET
                raise PartnerFailure(refusal, reason)
            yield here.client

    async def _request(self, client: Any, body: dict[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """Sends one request. Leaves no exception behind: one of the client's holds the request, and with it the key."""
        try:
            async with asyncio.timeout(seconds):
                content = await client.post("/chat/completions", body=body, cast_to=str)
            return read_answer(content, body, self.config, self.secrets)
        except TimeoutError:
            return Fault(f"no answer within {seconds:.3g} s", "down")
        except Exception as error:
            return fault_of(error, body, self.config, self.secrets, self.breaker.ever_answered)

    def _report(self, fault: Fault, call: object, sent: float) -> None:
        """Reports a fault to the breaker."""
        if fault.retry_after is not None and fault.retry_after >= self.config.turn_seconds:
            # The whole account has to wait, longer than a turn can: no game need fail for that.
            self.breaker.open(f"asks for a pause of {fault.retry_after:.0f} s", fault.why, fault.retry_after)
        elif fault.kind in ("down", "wrong"):
            self.breaker.failure(fault.why, call, sent, answered=fault.kind == "wrong")
        elif fault.kind in ("refused", "account"):
            self.breaker.refused(fault.why, call, sent, surely=fault.kind == "account")
        elif fault.kind != "own":
            self.breaker.alive(sent)

    def _backoff(self, retries: int, fault: Fault) -> float:
        """Returns seconds to wait: full jitter under a doubling ceiling, and a little more than the endpoint asks for."""
        first, draw = self.config.backoff_seconds, self._random.uniform
        wait = draw(0, min(self.config.max_backoff_seconds, first * 2.0 ** min(retries - 1, 30)))
        return wait if fault.retry_after is None else max(wait, fault.retry_after + draw(0, first))

    def _count(self, outcome: dict[str, Any] | Fault, body: dict[str, Any]) -> Usage:
        """Returns what a request took, added to the run's spending."""
        answered = not isinstance(outcome, Fault)
        if isinstance(outcome, Fault) and not outcome.billed:
            return Usage()
        tokens = count_tokens(None, body, "") if isinstance(outcome, Fault) else outcome
        counts = (tokens["input_tokens"], tokens["cached_tokens"], tokens["output_tokens"])
        if answered and tokens["estimated"]:
            self.warn_once(
                f"{self.url} reports no token counts, or impossible ones: tokens and cost are estimated.", "usage"
            )
        if "prompt_read" in tokens:
            self.warn_once(
                f"{self.url} read {tokens['prompt_read']} tokens of a prompt of about {guess_input(body)}: it cuts prompts "
                "without saying so. Give the server a longer context.",
                "cut",
            )
        cost = self.config.price.cost_usd(*counts) if self.config.price else 0.0
        usage = Usage(int(answered), *counts, cost, model=tokens.get("model"), estimated=int(tokens["estimated"]))
        self.spend.add(usage)
        return usage

    def _make(self) -> _Loop:
        """Returns the running loop's client and limits."""
        config = self.config
        wanted, (limit, _) = config.concurrency or LEAST_CONCURRENCY, resource.getrlimit(resource.RLIMIT_NOFILE)
        # Half of the files that this process may open, since a game may call an engine too.
        room = wanted if limit == resource.RLIM_INFINITY else max(1, limit // 2 - 32)
        if room < wanted:
            self.warn_once(
                f"This process may open {limit} files: {room} requests are in flight at once, not {wanted} "
                f"(partner.openai.concurrency). Raise the limit with `ulimit -n {2 * wanted + 1024}`.",
                "files",
            )
        requests, tokens = RateLimit(config.requests_per_minute), RateLimit(config.tokens_per_minute)
        slots = asyncio.Semaphore(min(wanted, room))
        return _Loop(make_client(self.address, config), slots, asyncio.Lock(), requests, tokens)
