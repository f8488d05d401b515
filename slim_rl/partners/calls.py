"""Calls to one OpenAI-compatible endpoint, as all dialogues of the process make them: each until it is answered, or fails with the reason.

    a request that fails is made again, with jittered exponential backoff, or after what Retry-After asks for
    all calls wait together for an endpoint that is down, and one warning reports it (`breaker`)
    for every fault of an endpoint the caller gets an answer or a `PartnerFailure`
    nothing of this, the request itself included, counts against the dialogue's deadline

Two parts of the openai client are not used. Its typed method takes 2.7 times the processor time of its bare POST, 0.26 of a core instead
of 0.10 with 256 calls in flight (benchmarks/bench_client.py). Its retries know nothing of the other calls: with them a soak of 1,500
dialogues (benchmarks/soak_partner.py) took 1.064 of the ideal makespan instead of 1.036, sent 47 requests instead of 6 while the key was
refused, and told of 583 retries of 1,135.

The openai client, the slots and the rate limits belong to an event loop and are made again for each; everything else outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from slim_rl.config import LEAST_CONCURRENCY, OpenAIConfig
from slim_rl.dialogue.deadline import not_counted
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import DataError
from slim_rl.event_loops import PerLoop
from slim_rl.partners.answers import count_tokens, guess_input, most_tokens, read_answer
from slim_rl.partners.breaker import Breaker
from slim_rl.partners.client import OPENAI_URL, make_client, read_key, split_url
from slim_rl.partners.dialect import Dialect
from slim_rl.partners.faults import Fault, fault_of
from slim_rl.partners.limiter import RateLimit
from slim_rl.partners.secrets import Secrets, redact_logs
from slim_rl.partners.spend import Spend, check_budget, cost_usd, price_of

log = logging.getLogger("slim_rl.partners")

REPLY_TOKENS = 60  # of a typical reply, reserved before it is there
BUDGET_LOOK_SECONDS = 0.02  # between looks at whether a call fits the budget beside those in flight


@dataclass(frozen=True, slots=True)
class _Here:
    """What belongs to one event loop."""

    client: Any
    slots: asyncio.Semaphore
    requests: RateLimit
    tokens: RateLimit
    purse: asyncio.Lock  # one call at a time looks at the budget


class Calls:
    """See the module's docstring. Raises ConfigError when built with settings that cannot work (no key, no price).

    Args:
        made: whether any call will be made, which takes a key.
    """

    def __init__(self, config: OpenAIConfig, made: bool = True) -> None:
        check_budget(config)
        self.config = config
        self.url, self._userinfo = split_url(config.base_url or OPENAI_URL)
        self._key = read_key(config, self.url) if made else ""
        self.secrets = Secrets(self._key, self._userinfo)
        self.price = price_of(config.model, config.prices)
        self.spend = Spend(config.budget_usd, config.budget_reserve)
        self.dialect = Dialect()
        self.breaker = Breaker(
            self.url,
            config.outage_failures,
            config.outage_seconds,
            config.outage_probe_seconds,
            config.outage_wait_minutes * 60,
        )
        self._loops = PerLoop(self._made, lambda here: here.client.close())
        self._said: set[str] = set()
        # Only waits are drawn from it: a reply never depends on it.
        self._random = random.Random()

    @property
    def stopped(self) -> str | None:
        """Why no new game should be started: the endpoint is down for good, or the budget is spent. None: it may."""
        return self.breaker.stopped or self.spend.refusal(opening=True)

    async def answer(self, body: dict[str, Any], opening: bool) -> tuple[dict[str, Any], Usage]:
        """Asks until there is an answer. Returns it (`answers.read_answer`) and what it took, failed tries included.

        Args:
            opening: the first call of a game, which the budget's reserve is not for.

        Raises:
            PartnerFailure: no answer after all retries; the message says why.
        """
        with not_counted():
            return await self._ask_until_answered(body, opening)

    def say_once(self, sentence: str, what: str = "") -> None:
        """Warns, and of the same sentence, or the same `what`, never again."""
        if (what or sentence) not in self._said:
            self._said.add(what or sentence)
            log.warning(sentence)

    async def _ask_until_answered(self, body: dict[str, Any], opening: bool) -> tuple[dict[str, Any], Usage]:
        config = self.config
        allowed = config.turn_seconds
        faults, usage = 0, Usage()
        call = object()
        while True:
            # Queueing is not the endpoint's slowness: only what follows counts against the turn.
            async with self._admitted(call, body, opening) as here:
                started, sent = time.monotonic(), self.dialect.fit(body)
                outcome = await self._request(here.client, sent, min(config.request_seconds, allowed))
                seconds = time.monotonic() - started
                usage += self._count(outcome, body, here.tokens)
                if not isinstance(outcome, Fault):
                    self.breaker.success(call)
                    if remark := self.dialect.remark(config.model):
                        log.warning(remark)
                    refused = [name for name in body if name not in sent]
                    return outcome | ({"refused": refused} if refused else {}), usage
                if self.dialect.learn(outcome.parameter, sent):
                    self.breaker.alive(call)
                    continue
                self._report(outcome, call)
            if outcome.kind == "own":
                raise PartnerFailure(f"The request to {self.url} could not be made: {outcome.why}", usage=usage)
            if outcome.kind == "request":
                raise PartnerFailure(
                    f"The partner's endpoint {self.url} refuses this request: {outcome.why}", usage=usage
                )
            self.spend.add(Usage(retries=1))
            usage += Usage(retries=1)
            faults += outcome.kind != "busy"  # an endpoint that asks for patience gets what the turn has
            if self.breaker.is_open or self.breaker.stopped:
                continue  # an outage has its own patience and takes none of this call's
            wait = self._backoff(usage.retries, outcome)
            allowed -= seconds + wait
            if faults > config.max_retries or allowed <= 0:
                limit = f"{usage.retries} tries" if allowed > 0 else f"{config.turn_seconds:g} s"
                raise PartnerFailure(f"No reply from {self.url} in {limit}; the last one: {outcome.why}", usage=usage)
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _admitted(self, call: object, body: dict[str, Any], opening: bool) -> AsyncIterator[_Here]:
        """Waits for a free slot, for the endpoint to be up, for the rate limits and for the budget."""
        here = await self._loops.here()
        async with here.slots:
            while (wait := self.breaker.admit(call)) > 0:  # noqa: ASYNC110 - an event would belong to one loop
                await asyncio.sleep(wait)
            try:
                self._check(opening)
                await here.requests.take()
                await here.tokens.take(guess_input(body) + REPLY_TOKENS)
                self._check(opening)
                await self._set_aside(here, call, body, opening)
                yield here
            finally:
                self.spend.give_back(call)
                self.breaker.release(call)

    async def _set_aside(self, here: _Here, call: object, body: dict[str, Any], opening: bool) -> None:
        """Waits until what the call may cost fits the budget beside the calls in flight."""
        read, written = most_tokens(body)
        most = cost_usd(self.price, read, 0, written)
        async with here.purse:
            try:
                while not self.spend.set_aside(call, most, opening):
                    self._check(opening)
                    await asyncio.sleep(BUDGET_LOOK_SECONDS)
            except DataError as error:
                self.say_once(str(error), "budget")
                raise PartnerFailure(str(error), StopReason.BUDGET) from None

    def _check(self, opening: bool) -> None:
        """Raises PartnerFailure if no call is made any more."""
        if self.breaker.stopped:
            raise PartnerFailure(self.breaker.stopped, StopReason.OUTAGE)
        refusal = self.spend.refusal(opening)
        if refusal:
            self.say_once(refusal, "budget")
            raise PartnerFailure(refusal, StopReason.BUDGET)

    async def _request(self, client: Any, body: dict[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """One try. Leaves no exception behind: one of the client's holds the request, and with it the key."""
        try:
            async with asyncio.timeout(seconds):
                content = await client.post("/chat/completions", body=body, cast_to=str)
            return read_answer(content, body, self.config, self.secrets)
        except TimeoutError:
            return Fault(f"no answer within {seconds:.3g} s", "down")
        except Exception as error:
            return fault_of(error, self.config, self.secrets, self.breaker.ever_answered)

    def _report(self, fault: Fault, call: object) -> None:
        """Tells the breaker."""
        pause = fault.retry_after
        if pause is not None and pause >= self.config.turn_seconds:
            # The whole account has to wait, longer than a turn can: no game need fail for that.
            self.breaker.open(f"asks for a pause of {pause:.0f} s", fault.why, pause)
        elif fault.kind in ("down", "wrong"):
            self.breaker.failure(fault.why, call, answered=fault.kind == "wrong")
        elif fault.kind in ("refused", "account"):
            self.breaker.refused(fault.why, call, surely=fault.kind == "account")
        elif fault.kind != "own":
            self.breaker.alive(call)

    def _backoff(self, retries: int, fault: Fault) -> float:
        """Seconds to wait: full jitter under a doubling ceiling, and no less than the endpoint asks for and a little more."""
        ceiling = min(self.config.max_backoff_seconds, self.config.backoff_seconds * 2.0 ** min(retries - 1, 30))
        wait = self._random.uniform(0, ceiling)
        if fault.retry_after is None:
            return wait
        return max(wait, fault.retry_after + self._random.uniform(0, self.config.backoff_seconds))

    def _count(self, outcome: dict[str, Any] | Fault, body: dict[str, Any], limit: RateLimit) -> Usage:
        """What a try took, added to the run's spending and set against the tokens reserved for it."""
        if isinstance(outcome, Fault):
            if not outcome.billed:
                return Usage()
            tokens = count_tokens(None, body, "")
            calls, model = 0, None
        else:
            tokens, calls, model = outcome, 1, outcome["model"]
        counts = (tokens["input_tokens"], tokens["cached_tokens"], tokens["output_tokens"])
        if tokens["estimated"] and not isinstance(outcome, Fault):
            self.say_once(
                f"{self.url} reports no token counts, or impossible ones: tokens and cost are estimated.",
                "estimated",
            )
        estimated = int(tokens["estimated"])
        usage = Usage(calls, *counts, cost_usd(self.price, *counts), model=model, estimated=estimated)
        self.spend.add(usage)
        limit.correct(counts[0] + counts[2] - guess_input(body) - REPLY_TOKENS)
        return usage

    def _made(self) -> _Here:
        config = self.config
        redact_logs()  # handlers may have been added since
        client = make_client(self.url, self._key, self._userinfo, config)
        slots = asyncio.Semaphore(config.concurrency or LEAST_CONCURRENCY)
        requests, tokens = RateLimit(config.requests_per_minute), RateLimit(config.tokens_per_minute)
        return _Here(client, slots, requests, tokens, asyncio.Lock())
