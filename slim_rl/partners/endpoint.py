"""OpenAI-compatible endpoint, shared by all dialogues of the process.

Invariants:
    Every request gets a `Completion` or a `PartnerFailure`. An answer in the cassette is not asked for again.
    A failed request is repeated as the table of `answers` says, with jittered exponential backoff or after Retry-After.
    All calls wait together for an endpoint that is down, and one warning reports it (`limits`).
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import random
import resource
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from slim_rl.config import LEAST_CONCURRENCY, OpenAIConfig
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Usage
from slim_rl.errors import ConfigError, DataError
from slim_rl.event_loops import PerLoop
from slim_rl.http import Response
from slim_rl.partners.answers import LEARNED, RENAMED, SYSTEM, AnswerReader, Fault, count_tokens, cut, guess_input
from slim_rl.partners.cassette import Cassette, request_key
from slim_rl.partners.limits import Breaker, RateLimit
from slim_rl.partners.quoting import Secrets
from slim_rl.partners.spend import Spend

log = logging.getLogger("slim_rl.partners")

OPENAI_URL = "https://api.openai.com/v1"
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
class _Limits:
    """Limits of one event loop."""

    slots: asyncio.Semaphore
    probing: asyncio.Lock  # one call at a time asks an endpoint that is down
    requests: RateLimit
    tokens: RateLimit


class Endpoint:
    """See the module's docstring. Raises ConfigError for settings that cannot work (no key, no price, no cassette).

    Class attributes:
        first_wait, longest_wait: seconds before the first retry, which double with each further one, and their bound.
    """

    first_wait: float = 0.5
    longest_wait: float = 20.0

    def __init__(self, config: OpenAIConfig) -> None:
        from slim_rl.partners.client import EndpointClient  # a second, for openai

        if config.budget_usd is not None and config.price is None:
            raise ConfigError(
                f"{config.player}.openai.budget_usd is set, but {config.player}.openai.prices has no entry for {config.model!r}. Add its price."
            )
        self.config, self.replays = config, config.cassette_mode == "replay"
        self.url = (config.base_url or OPENAI_URL).rstrip("/")
        key = "" if self.replays else _key(config, self.url)
        given = {name.lower(): value.replace("{key}", key) for name, value in config.headers.items()}
        self.headers = ({"authorization": f"Bearer {key}"} if key else {}) | given | {"accept-encoding": "identity"}
        self.answers = AnswerReader(config, Secrets(key, *given.values()))
        self.spend = Spend(config.budget_usd, player=config.player)
        self.refused: list[str] = []  # the parameters that the model refuses
        if self.replays and config.cassette is None:
            raise ConfigError(
                f"{config.player}.openai.cassette_mode is replay, but there is no file. Set {config.player}.openai.cassette."
            )
        self.cassette = Cassette(config.cassette, self.replays) if config.cassette else None
        self.breaker = Breaker(f"{config.player}'s endpoint {self.url}", config.outage_wait_minutes * 60)
        self.warned: dict[str, str] = {}  # topic -> the sentence that `warn_once` has logged
        self._client = EndpointClient(proxies=not is_local(self.url))
        self._limits = PerLoop(self._make_limits)
        self._random = random.Random()  # for waits alone

    @property
    def stopped(self) -> str | None:
        """Sentence that says why no new game should start (no more calls, or a full disk), or None."""
        full = self.cassette.trouble if self.cassette is not None else None
        return self.breaker.stopped or self.spend.refusal() or full

    @property
    def identity(self) -> dict[str, Any]:
        """Endpoint, model, effective request parameters, and the names of the parameters that the model refuses."""
        request = {"seed": None} | self._fit(self.parameters() | {"seed": "dialogue"})
        refused = {"refused": sorted(self.refused)} if self.refused else {}
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
        body = {**self.parameters(), "messages": messages, "seed": seed}
        try:
            answer, usage = await self._answer(body, seed)
        except DataError as error:
            self.warn_once(str(error))
            raise PartnerFailure(str(error)) from None
        if not answer["text"].strip() and answer.get("finish_reason") == "length":
            self.warn_once(
                f"{self.config.model} uses all of {self.config.player}.openai.max_tokens={self.config.max_tokens} for thoughts. Raise it, or "
                f"set {self.config.player}.openai.reasoning_effort=low."
            )
        text = cut(answer["text"], answer.get("finish_reason") or "stop")
        return Completion(**text, usage=usage, thought=answer.get("thought"), refusal=answer.get("refusal"))

    async def _answer(self, body: dict[str, Any], seed: int) -> tuple[dict[str, Any], Usage]:
        """Returns the cassette's answer, asked for if it has none."""
        if self.cassette is None:
            return await self._ask_until_answered(body)
        key = request_key(body, seed)
        if (recorded := self.cassette.get(key)) is not None:
            self._learn(recorded.get("refused") or ())
            return recorded, Usage(model=recorded.get("model"))
        if self.replays:
            raise PartnerFailure(
                f"The cassette {self.cassette.path} has no answer to request {key}. Record it with cassette_mode=auto."
            )
        answer, usage = await self._ask_until_answered(body)
        answer = self.cassette.keep(key, body, seed, answer)
        if self.cassette.trouble:
            self.warn_once(self.cassette.trouble)
        return answer, usage

    async def _ask_until_answered(self, body: dict[str, Any]) -> tuple[dict[str, Any], Usage]:
        """Returns an answer and what the call took. Raises PartnerFailure."""
        config, call = self.config, object()
        left, faults, usage, why = config.turn_seconds, 0, Usage(), ""
        while True:
            # Queueing is not the endpoint's slowness: only what follows counts against the turn.
            async with self._admitted(body, usage):
                started, refused = time.monotonic(), list(self.refused)
                outcome = await self._request(self._fit(body), min(config.request_seconds, left))
                seconds = time.monotonic() - started
                usage += self._count(outcome, body)
                if not isinstance(outcome, Fault):
                    self.breaker.alive(answered=True)
                    return outcome | ({"refused": refused} if refused else {}), usage
                self._report(outcome, call, started)
            if outcome.kind == "parameter":
                self._learn([outcome.parameter])
                continue
            # The last slice of the turn is our own limit: what the endpoint said before it is the reason.
            why = why if why and outcome.timed_out and left < config.request_seconds else outcome.why
            if outcome.kind in ("own", "request"):
                what = "could not be made" if outcome.kind == "own" else "was refused"
                raise PartnerFailure(f"The request to {self.url} {what}: {outcome.why}", usage=usage)
            self.spend.add(Usage(retries=1))
            usage += Usage(retries=1)
            if self.breaker.is_open or self.breaker.stopped:
                continue  # the time of an outage is not the turn's
            faults += outcome.kind != "busy"  # an endpoint that asks to wait gets all the time of the turn
            wait = self._backoff(usage.retries, outcome)
            left -= seconds + wait
            if faults > config.max_retries or left <= 0:
                limit = f"{usage.retries} tries" if left > 0 else f"{config.turn_seconds:g} s"
                raise PartnerFailure(f"No reply from {self.url} in {limit}; the last one: {why}", usage=usage)
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _admitted(self, body: dict[str, Any], usage: Usage) -> AsyncIterator[None]:
        """Waits until a slot, the endpoint and the rate limits are free. Raises PartnerFailure, with `usage`, if calls have stopped."""
        here = await self._limits.here()
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
                raise PartnerFailure(self.breaker.stopped, StopReason.OUTAGE, usage)
            if refusal := self.spend.refusal():
                self.warn_once(refusal, "budget")
                # Without a budget it is the disk that stops the run.
                reason = StopReason.OUTAGE if self.config.budget_usd is None else StopReason.BUDGET
                raise PartnerFailure(refusal, reason, usage)
            yield

    async def _request(self, body: dict[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """Sends one request. Leaves no exception behind: one of the client's holds the request, and with it the key."""
        try:
            async with asyncio.timeout(seconds):
                response = await self.send("/chat/completions", body)
        except TimeoutError:
            return Fault(f"no answer within {seconds:.3g} s", "down", timed_out=True)
        except Exception as error:
            return self.answers.not_answered(error)
        return self.answers.read(response, body, self.breaker.ever_answered)

    async def send(self, path: str, body: Mapping[str, Any] | None) -> Response:
        """Sends a request without retries. Raises what `EndpointClient.send` raises."""
        return await self._client.send(f"{self.url}{path}", body, self.headers, self.config.query)

    async def shutdown_date(self) -> str | None:
        """Returns the date that the endpoint names for its model's end, as YYYY-MM-DD; None if it names none.

        Source: `shutdown_date` in OpenAI's GET /models.
        """
        try:
            async with asyncio.timeout(self.config.request_seconds):
                response = await self.send("/models", None)
            dates = {model["id"]: model.get("shutdown_date") for model in json.loads(response.content)["data"]}
            return str(date.fromisoformat(dates[self.config.model]))
        except Exception:  # most endpoints know no such date
            return None

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
            self.breaker.alive()

    def _backoff(self, retries: int, fault: Fault) -> float:
        """Returns seconds to wait: full jitter under a doubling ceiling, and a little more than the endpoint asks for."""
        draw = self._random.uniform
        wait = draw(0, min(self.longest_wait, self.first_wait * 2.0 ** min(retries - 1, 30)))
        return wait if fault.retry_after is None else max(wait, fault.retry_after + draw(0, self.first_wait))

    def _fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the request as the model takes it: refused parameters in their other form, or left out."""
        names = {name: RENAMED.get(name) if name in self.refused else name for name in body}
        sent = {taken: body[name] for name, taken in names.items() if taken}
        if SYSTEM in self.refused and body.get("messages", [{}])[0].get("role") == "system":
            rules, opening, *rest = body["messages"]
            sent["messages"] = [{**opening, "content": f"{rules['content']}\n\n{opening['content']}"}, *rest]
        return sent

    def _learn(self, parameters: Sequence[str]) -> None:
        """Records parameters that the model refuses, and says once what is sent in their place."""
        for name in parameters:
            if name in LEARNED and name not in self.refused:
                self.refused.append(name)
                self.warn_once(f"{self.config.model} refuses {name}, which {LEARNED[name]}.")

    def _count(self, outcome: dict[str, Any] | Fault, body: dict[str, Any]) -> Usage:
        """Returns what a request took, added to the run's spending."""
        answered = not isinstance(outcome, Fault)
        if isinstance(outcome, Fault) and not outcome.billed:
            return Usage()
        tokens = count_tokens(None, body, "") if isinstance(outcome, Fault) else outcome
        counts = (tokens["input_tokens"], tokens["cached_tokens"], tokens["output_tokens"])
        written = tokens["written_tokens"]
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
        cost = self.config.price.cost_usd(*counts, written) if self.config.price else 0.0
        usage = Usage(int(answered), *counts, cost, model=tokens.get("model"), estimated=int(tokens["estimated"]))
        self.spend.add(usage)
        return usage

    def _make_limits(self) -> _Limits:
        """Returns the running loop's limits."""
        config = self.config
        wanted, (limit, _) = config.concurrency or LEAST_CONCURRENCY, resource.getrlimit(resource.RLIMIT_NOFILE)
        # Half of the files that this process may open, since a game may call an engine too.
        room = wanted if limit == resource.RLIM_INFINITY else max(1, limit // 2 - 32)
        slots = asyncio.Semaphore(min(wanted, room))
        return _Limits(
            slots, asyncio.Lock(), RateLimit(config.requests_per_minute), RateLimit(config.tokens_per_minute)
        )


def is_local(url: str) -> bool:
    """Returns True if a URL is of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key(config: OpenAIConfig, url: str) -> str:
    """Returns the API key, "" for none. Raises ConfigError if it is missing or cannot be sent."""
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and config.base_url is None:
        raise ConfigError(
            f"No key for {url}. Set the environment variable {config.api_key_env}, or {config.player}.openai.base_url for an endpoint "
            "that needs none."
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(
            f"The key in ${config.api_key_env} holds a space, a line break or a character outside ASCII. Copy it again."
        )
    return key
