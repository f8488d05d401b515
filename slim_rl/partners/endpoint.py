"""One OpenAI-compatible endpoint, shared by all dialogues of the process.

    every request gets a `Completion` or a `PartnerFailure`; an answer that the cassette holds is not asked for again
    a request that fails is made again as the table of `faults` says, with jittered exponential backoff, or after Retry-After
    all calls wait together for an endpoint that is down, and one warning reports it (`breaker`)

The openai client's typed method takes 2.7 times the processor time of its bare POST (benchmarks/bench_client.py). Its retries do not know
the other calls: with them a soak of 1,500 dialogues (benchmarks/soak_partner.py) took 1.064 of the ideal makespan instead of 1.036, and
sent 47 requests instead of 6 while the key was refused. So neither is used.
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
from weakref import WeakValueDictionary

from slim_rl.config import LEAST_CONCURRENCY, OpenAIConfig
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
from slim_rl.event_loops import PerLoop
from slim_rl.partners.answers import count_tokens, cut, guess_input, most_tokens, read_answer
from slim_rl.partners.breaker import Breaker
from slim_rl.partners.cassette import Cassette, request_key
from slim_rl.partners.client import address_of, make_client, open_files
from slim_rl.partners.dialect import Dialect
from slim_rl.partners.faults import Fault, fault_of
from slim_rl.partners.limiter import RateLimit
from slim_rl.partners.secrets import redact_logs
from slim_rl.partners.spend import Spend, check_budget, cost_usd, price_of

log = logging.getLogger("slim_rl.partners")

REPLY_TOKENS = 60  # of a typical reply, reserved before it is there
BUDGET_LOOK_SECONDS = 0.02  # between looks at whether a call fits the budget next to those in flight


@dataclass(frozen=True, slots=True)
class Completion:
    """Answered request.

    Attributes:
        text: the first choice's content; "" if it has none.
        finish_reason: as OpenAI says: stop, length, content_filter, tool_calls.
        usage: what it took, failed tries included; all zero when it came from a cassette.
        thought, refusal: what the model thought, and why it refused, where its server has them apart from the text.
    """

    text: str
    finish_reason: str
    usage: Usage
    thought: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class _Here:
    """What belongs to one event loop."""

    client: Any
    slots: asyncio.Semaphore
    requests: RateLimit
    tokens: RateLimit
    purse: asyncio.Lock  # one call at a time looks at the budget


class Endpoint:
    """See the module's docstring. Raises ConfigError when built with settings that cannot work (no key, no price, no cassette)."""

    def __init__(self, config: OpenAIConfig) -> None:
        check_budget(config)
        self.config, self.replays = config, config.cassette_mode == "replay"
        self.address = address_of(config, called=not self.replays)
        self.url, self.secrets = self.address.url, self.address.secrets
        self.price = price_of(config.model, config.prices)
        self.spend, self.dialect = Spend(config.budget_usd, config.budget_reserve), Dialect()
        self.cassette = Cassette(config.cassette, config.cassette_mode) if config.cassette else None
        if self.replays and self.cassette is None:
            raise ConfigError("partner.openai.cassette_mode is replay, but partner.openai.cassette names no file.")
        self.breaker = Breaker(self.url, config)
        self.warned: dict[str, str] = {}  # what about -> the sentence that `warn_once` has logged
        self._loops = PerLoop(self._made, lambda here: here.client.close())
        # by loop and request, while somebody waits for its answer
        self._asking: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
        self._random = random.Random()  # for waits alone

    @property
    def stopped(self) -> str | None:
        """Sentence that says why no new game should be started: no call is made any more, or the cassette's disk is full."""
        full = self.cassette.trouble if self.cassette is not None else None
        return self.breaker.stopped or self.spend.refusal(opening=True) or full

    @property
    def identity(self) -> dict[str, Any]:
        """Endpoint, model, and the effective request parameters; those of the config that the model refuses are named."""
        asked = self.parameters() | {"seed": "dialogue" if self.config.send_seed else None}
        request = {"seed": None} | self.dialect.fit(asked)
        refused = {"refused": sorted(self.dialect.refused)} if self.dialect.refused else {}
        return {"base_url": self.url, "model": self.config.model, "request": request, **refused}

    def parameters(self) -> dict[str, Any]:
        """Returns the config's request parameters, without the messages and the seed."""
        names = ("temperature", "top_p", "max_tokens", "reasoning_effort")
        chosen = {name: getattr(self.config, name) for name in names if getattr(self.config, name) is not None}
        return {"model": self.config.model, **chosen, **self.config.extra}

    def body(self, messages: list[dict[str, str]], seed: int) -> dict[str, Any]:
        """Returns the request as the config asks for it, which is its form in the cassette."""
        return {**self.parameters(), "messages": messages, **({"seed": seed} if self.config.send_seed else {})}

    def warn_once(self, sentence: str, what: str = "") -> None:
        """Logs a warning; the same sentence, or the same `what`, only once."""
        if (what or sentence) not in self.warned:
            self.warned[what or sentence] = sentence
            log.warning(sentence)

    async def ask(self, messages: list[dict[str, str]], seed: int, opening: bool = False) -> Completion:
        """Returns the model's answer to `messages`. Raises PartnerFailure if there is none after all retries.

        Args:
            seed: sent with the request, and part of its address in the cassette.
            opening: True for the first call of a game, which the budget's reserve is not for.
        """
        try:
            answer, usage = await self._answer(self.body(messages, seed), seed, opening)
        except DataError as error:
            self.warn_once(str(error))
            raise PartnerFailure(str(error)) from None
        if not answer["text"].strip() and answer.get("finish_reason") == "length":
            self.warn_once(
                f"{self.config.model} uses all of partner.openai.max_tokens={self.config.max_tokens} for thoughts, and says "
                "nothing. Raise it, or set partner.openai.reasoning_effort=low."
            )
        text = cut(answer["text"], answer.get("finish_reason") or "stop", self.config)
        return Completion(**text, usage=usage, thought=answer.get("thought"), refusal=answer.get("refusal"))

    async def _answer(self, body: dict[str, Any], seed: int, opening: bool) -> tuple[dict[str, Any], Usage]:
        """Returns the cassette's answer, asked for where it has none. Equal requests at once are asked once."""
        if self.cassette is None:
            return await self._ask_until_answered(body, opening)
        key = request_key(body, seed)
        async with self._asking.setdefault((asyncio.get_running_loop(), key), asyncio.Lock()):
            self.cassette.flush()
            if (kept := self.cassette.get(key)) is not None:
                self.dialect.recall(kept.get("refused") or ())
                return kept, Usage(model=kept.get("model"))
            if self.replays:
                raise PartnerFailure(
                    f"The cassette {self.cassette.path} has no answer to request {key}; record it with cassette_mode=auto."
                )
            answer, usage = await self._ask_until_answered(body, opening)
            return self.cassette.keep(key, body, seed, answer), usage

    async def _ask_until_answered(self, body: dict[str, Any], opening: bool) -> tuple[dict[str, Any], Usage]:
        config, call = self.config, object()
        allowed, faults, usage = config.turn_seconds, 0, Usage()
        while True:
            # Queueing is not the endpoint's slowness: only what follows counts against the turn.
            async with self._admitted(call, body, opening) as here:
                started, sent = time.monotonic(), self.dialect.fit(body)
                outcome = await self._request(here.client, sent, min(config.request_seconds, allowed))
                seconds = time.monotonic() - started
                usage += self._count(outcome, body, here.tokens)
                if not isinstance(outcome, Fault):
                    self.breaker.alive(call, answered=True)
                    if remark := self.dialect.remark(config.model):
                        log.warning(remark)
                    refused = [name for name in body if name not in sent]
                    return outcome | ({"refused": refused} if refused else {}), usage
                self._report(outcome, call)
            if outcome.kind == "parameter":
                self.dialect.recall(outcome.parameters)
                continue
            if outcome.kind in ("own", "request"):
                what = "could not be made" if outcome.kind == "own" else "was refused"
                raise PartnerFailure(f"The request to {self.url} {what}: {outcome.why}", usage=usage)
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
                async with here.purse:
                    read, written = most_tokens(body)
                    while not self.spend.set_aside(call, cost_usd(self.price, read, 0, written), opening):
                        self._check(opening)
                        await asyncio.sleep(BUDGET_LOOK_SECONDS)
                yield here
            except DataError as error:
                self._stop_for_money(str(error))
            finally:
                self.spend.give_back(call)
                self.breaker.release(call)

    def _check(self, opening: bool) -> None:
        """Raises PartnerFailure if no call is made any more."""
        if self.breaker.stopped:
            raise PartnerFailure(self.breaker.stopped, StopReason.OUTAGE)
        if refusal := self.spend.refusal(opening):
            self._stop_for_money(refusal)

    def _stop_for_money(self, sentence: str) -> None:
        """Raises PartnerFailure. Without a budget it is the disk that stops the run."""
        self.warn_once(sentence, "budget")
        reason = StopReason.BUDGET if self.config.budget_usd is not None else StopReason.OUTAGE
        raise PartnerFailure(sentence, reason) from None

    async def _request(self, client: Any, body: dict[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """Makes one try. Leaves no exception behind: one of the client's holds the request, and with it the key."""
        try:
            async with asyncio.timeout(seconds):
                content = await client.post("/chat/completions", body=body, cast_to=str)
            return read_answer(content, body, self.config, self.secrets)
        except TimeoutError:
            return Fault(f"no answer within {seconds:.3g} s", "down")
        except Exception as error:
            return fault_of(error, body, self.config, self.secrets, self.breaker.ever_answered)

    def _report(self, fault: Fault, call: object) -> None:
        """Reports a fault to the breaker."""
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
        """Returns seconds to wait: full jitter under a doubling ceiling, and a little more than the endpoint asks for."""
        first, draw = self.config.backoff_seconds, self._random.uniform
        wait = draw(0, min(self.config.max_backoff_seconds, first * 2.0 ** min(retries - 1, 30)))
        return wait if fault.retry_after is None else max(wait, fault.retry_after + draw(0, first))

    def _count(self, outcome: dict[str, Any] | Fault, body: dict[str, Any], limit: RateLimit) -> Usage:
        """Returns what a try took, added to the run's spending and set against the tokens reserved for it."""
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
        estimated, cost = int(tokens["estimated"]), cost_usd(self.price, *counts)
        usage = Usage(int(answered), *counts, cost, model=tokens.get("model"), estimated=estimated)
        self.spend.add(usage)
        limit.correct(counts[0] + counts[2] - guess_input(body) - REPLY_TOKENS)
        return usage

    def _made(self) -> _Here:
        config = self.config
        redact_logs()  # handlers may have been added since
        wanted = config.concurrency or LEAST_CONCURRENCY
        limit, room = open_files()
        if room < wanted:
            self.warn_once(
                f"This process may open {limit} files: {room} requests are in flight at once, not {wanted} "
                f"(partner.openai.concurrency). Raise the limit with `ulimit -n {2 * wanted + 1024}`.",
                "files",
            )
        slots = asyncio.Semaphore(min(wanted, room))
        requests, tokens = RateLimit(config.requests_per_minute), RateLimit(config.tokens_per_minute)
        return _Here(make_client(self.address, config), slots, requests, tokens, asyncio.Lock())
