"""One OpenAI-compatible endpoint as every dialogue of the process shares it: asks until it is answered, or says why not.

    a request that fails is made again, with jittered exponential backoff, or after what Retry-After asks for
    an endpoint that is down is waited for by all calls together, and said once (`breaker`)
    no secret leaves the request's headers: messages, logs, identity and cassette never hold one

The openai client and the semaphore belong to an event loop and are made anew for each; all else outlives loops.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import json
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from slim_rl.config import OpenAIConfig
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError
from slim_rl.partners.breaker import Breaker
from slim_rl.partners.cassette import Cassette, request_key
from slim_rl.partners.limiter import RateLimit
from slim_rl.partners.spend import Spend, check_budget, cost_usd, price_of

log = logging.getLogger("slim_rl.partners")

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Completion:
    """An answered request.

    Attributes:
        text: the first choice's content; "" if it has none.
        finish_reason: as the API says: stop, length, content_filter, ...
        usage: what it took, failed tries included; all zero when it came from a cassette.
    """

    text: str
    finish_reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that was not answered, as the retry loop sees it.

    Attributes:
        why: one sentence's worth, without secrets.
        kind: ``down`` (the endpoint is to blame), ``busy`` (it asks for patience), ``refused`` (it will not mend itself) or
            ``request`` (this request is at fault, and only it).
        retry_after: seconds the endpoint asks to wait; None if it does not say.
    """

    why: str
    kind: str
    retry_after: float | None = None


@dataclass
class _PerLoop:
    """What belongs to one event loop."""

    client: Any
    slots: asyncio.Semaphore
    closer: AsyncGenerator[None, None] = field(repr=False)


class Endpoint:
    """See the module's docstring. Raises ConfigError when built with settings that cannot work (no key, no price, no cassette)."""

    def __init__(self, config: OpenAIConfig) -> None:
        check_budget(config)
        self.config = config
        self.url, self._userinfo = _split_url(config.base_url or OPENAI_URL)
        self.cassette = Cassette(config.cassette, config.cassette_mode) if config.cassette else None
        self.replays = config.cassette_mode == "replay"
        if self.replays and self.cassette is None:
            raise ConfigError("partner.openai.cassette_mode is replay, but partner.openai.cassette names no file.")
        if not self.replays:
            self._key()
        self.price = price_of(config.model, config.prices)
        self.spend = Spend(config.budget_usd, config.budget_reserve)
        self.breaker = Breaker(
            self.url,
            config.outage_failures,
            config.outage_seconds,
            config.outage_probe_seconds,
            config.outage_wait_minutes * 60,
        )
        self._requests = RateLimit(config.requests_per_minute)
        self._tokens = RateLimit(config.tokens_per_minute)
        self._loops: dict[asyncio.AbstractEventLoop, _PerLoop] = {}
        self._said_budget = False
        # Only waits are drawn from it: a reply never depends on it.
        self._random = random.Random()

    @property
    def stopped(self) -> str | None:
        """Why no new game should be started: the endpoint is down for good, or the budget is spent. None: go on."""
        return self.breaker.stopped or self.spend.refusal(opening=True)

    def body(self, messages: list[dict[str, str]], seed: int) -> dict[str, Any]:
        """The request as it is sent, and as the cassette knows it."""
        sent = {**self.parameters(), "messages": messages}
        if self.config.send_seed:
            sent["seed"] = seed
        return sent

    def parameters(self) -> dict[str, Any]:
        """The effective request parameters, without the messages and the seed."""
        names = ("temperature", "top_p", "max_tokens")
        chosen = {name: getattr(self.config, name) for name in names if getattr(self.config, name) is not None}
        return {"model": self.config.model, **chosen, **self.config.extra}

    async def ask(self, messages: list[dict[str, str]], seed: int, opening: bool = False) -> Completion:
        """The model's answer to `messages`.

        Args:
            seed: sent with the request, and part of its address in the cassette.
            opening: the first call of a game, which the budget's reserve is not for.

        Raises:
            PartnerFailure: no answer, whatever was tried; the message says why.
        """
        body = self.body(messages, seed)
        key = request_key(body, seed) if self.cassette is not None else ""
        kept = self.cassette.get(key) if self.cassette is not None else None
        if kept is not None:
            return Completion(kept["text"], kept["finish_reason"], Usage(model=kept["model"]))
        if self.replays:
            raise PartnerFailure(
                f"The cassette {self.config.cassette} has no answer to request {key}; record it with cassette_mode=auto."
            )
        answer, retries = await self._answer(body, opening)
        usage = self._count(answer, retries)
        if self.cassette is not None:
            answer = self.cassette.keep(key, body, seed, answer)
        return Completion(answer["text"], answer["finish_reason"], usage)

    async def _answer(self, body: dict[str, Any], opening: bool) -> tuple[dict[str, Any], int]:
        """Asks until there is an answer. Returns it and how often it had to ask again."""
        config = self.config
        allowed = config.turn_seconds
        retries = faults = 0
        while True:
            # Queueing is not the endpoint's slowness: only what follows counts against the turn.
            call = object()
            async with self._admitted(call, body, opening) as client:
                started = time.monotonic()
                outcome = await self._request(client, body, min(config.request_seconds, allowed))
                seconds = time.monotonic() - started
                if isinstance(outcome, Fault):
                    self._report(outcome, call)
                else:
                    self.breaker.success()
                    self._tokens.correct(outcome["input_tokens"] + outcome["output_tokens"] - _guess_tokens(body))
                    return outcome, retries
            if outcome.kind == "request":
                raise PartnerFailure(f"The partner's endpoint {self.url} refuses this request: {outcome.why}")
            retries += 1
            faults += outcome.kind != "busy"  # an endpoint that asks for patience gets what the turn has
            if self.breaker.is_open or self.breaker.stopped:
                continue  # an outage has its own patience and takes none of this call's
            if outcome.kind == "refused":
                raise PartnerFailure(f"The partner's endpoint {self.url} refuses: {outcome.why}")
            wait = self._backoff(retries, outcome)
            allowed -= seconds + wait
            if faults > config.max_retries or allowed <= 0:
                limit = f"{retries} tries" if allowed > 0 else f"{config.turn_seconds:g} s"
                raise PartnerFailure(f"No reply from {self.url} in {limit}; the last one: {outcome.why}")
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _admitted(self, call: object, body: dict[str, Any], opening: bool) -> AsyncIterator[Any]:
        """Waits for a free slot, for the endpoint to be up, and for the rate limits. Yields the client."""
        here = await self._here()
        async with here.slots:
            while (wait := self.breaker.admit(call)) > 0:  # noqa: ASYNC110 - an event would belong to one loop
                await asyncio.sleep(wait)
            try:
                if self.breaker.stopped:
                    raise PartnerFailure(self.breaker.stopped)
                refusal = self.spend.refusal(opening)
                if refusal:
                    if not self._said_budget:
                        log.warning(refusal)
                        self._said_budget = True
                    raise PartnerFailure(refusal, StopReason.BUDGET)
                wait = max(self._requests.reserve(), self._tokens.reserve(_guess_tokens(body)))
                if wait > 0:
                    await asyncio.sleep(wait)
                yield here.client
            finally:
                self.breaker.release(call)

    async def _request(self, client: Any, body: dict[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """One try. Leaves no exception behind: one of the client's holds the request, and with it the key."""
        try:
            async with asyncio.timeout(seconds):
                # chat.completions.create would look at every message of every request again, at half of all the CPU it takes.
                return _read_answer(await client.post("/chat/completions", body=body, cast_to=str))
        except TimeoutError:
            return Fault(f"no answer within {seconds:.3g} s", "down")
        except Exception as error:
            return self._fault(error)

    def _report(self, fault: Fault, call: object) -> None:
        """Tells the breaker."""
        if fault.kind == "down":
            self.breaker.failure(fault.why, call)
        elif fault.kind == "refused":
            self.breaker.refused(fault.why, call)
        elif fault.retry_after is not None and fault.retry_after >= self.config.turn_seconds:
            # The whole account has to wait, longer than a turn can: no game need fail for that.
            self.breaker.open(f"asks for a pause of {fault.retry_after:.0f} s", fault.why, fault.retry_after)
        else:
            self.breaker.success()

    def _fault(self, error: Exception) -> Fault:
        """What an exception of the client means. Anything unknown is taken for a passing fault: retries are bounded."""
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._status_fault(error)
        if isinstance(error, openai.APITimeoutError):
            return Fault("the connection timed out", "down")
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            return Fault(self.redact(f"the connection failed: {type(cause).__name__} {cause}".strip()), "down")
        return Fault(self.redact(f"{type(error).__name__}: {error}"), "down")

    def _status_fault(self, error: Any) -> Fault:
        status, code = error.status_code, str(error.code or "")
        said = error.body.get("message") if isinstance(error.body, dict) else None
        why = self.redact(f"HTTP {status}{f' {code}' if code else ''}: {said or error.message}")
        if code == "insufficient_quota":
            return Fault(f"{why} (the account has no money left)", "refused")
        if status == 401:
            return Fault(f"{why} (is the key in ${self.config.api_key_env} right?)", "refused")
        if status in (403, 404) or code == "model_not_found" or (status == 400 and "model" in str(error.param or "")):
            return Fault(f"{why} (is the model {self.config.model} right, and may this key use it?)", "refused")
        if status in (408, 409, 425, 429, 503) or status >= 500:
            retry_after = _retry_after(error.response.headers)
            return Fault(why, "busy" if status == 429 else "down", retry_after)
        if self.breaker.ever_answered or code in ("context_length_exceeded", "content_filter"):
            return Fault(why, "request")
        return Fault(f"{why} (does the endpoint know every parameter of the request?)", "refused")

    def _backoff(self, retries: int, fault: Fault) -> float:
        """Seconds to wait: what the endpoint asks for and a little more, or full jitter under a doubling ceiling."""
        ceiling = min(self.config.max_backoff_seconds, self.config.backoff_seconds * 2.0 ** min(retries - 1, 30))
        if fault.retry_after is not None:
            return fault.retry_after + self._random.uniform(0, self.config.backoff_seconds)
        return self._random.uniform(0, ceiling)

    def _count(self, answer: dict[str, Any], retries: int) -> Usage:
        counts = (answer["input_tokens"], answer["cached_tokens"], answer["output_tokens"])
        usage = Usage(1, *counts, cost_usd(self.price, *counts), retries, model=answer["model"])
        self.spend.add(usage)
        return usage

    def redact(self, text: str) -> str:
        """`text` without the key or the URL's credentials, on one line, cut to a sentence's length."""
        key = os.environ.get(self.config.api_key_env, "").strip()
        for secret in (key, _base64(self._userinfo), self._userinfo, *self._userinfo.split(":", 1)):
            if len(secret) >= 4:
                text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= 240 else f"{text[:240]}..."

    def _key(self) -> str:
        key = os.environ.get(self.config.api_key_env, "").strip()
        if not key and self.config.base_url is None and not self.replays:
            raise ConfigError(
                f"No key for {self.url}: set the environment variable {self.config.api_key_env}, or partner.openai.base_url "
                "for an endpoint that needs none."
            )
        return key

    async def _here(self) -> _PerLoop:
        """The client and the slots of the running loop; the client is closed when the loop shuts down."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops = {other: its for other, its in self._loops.items() if not other.is_closed()}
            client = self._client()
            closer = _closes(client)
            self._loops[loop] = _PerLoop(client, asyncio.Semaphore(self.config.concurrency), closer)
            await anext(closer)
        return self._loops[loop]

    def _client(self) -> Any:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        headers = {"Authorization": f"Basic {_base64(self._userinfo)}"} if self._userinfo else None
        return AsyncOpenAI(
            api_key=self._key() or "none",
            base_url=self.url,
            max_retries=0,  # retries are ours: they are counted, and they know of the other calls
            timeout=self.config.request_seconds,
            default_headers=headers,
            http_client=DefaultAioHttpClient(),  # half the CPU a request of the default, and no slower pool with hundreds
        )


async def _closes(client: Any) -> AsyncGenerator[None, None]:
    """Closes `client` when its loop shuts its asynchronous generators down, as asyncio.run does at its end."""
    try:
        yield
    finally:
        await client.close()


def _read_answer(content: str) -> dict[str, Any]:
    """The parts of a chat completion that are used. Raises ValueError for anything else."""
    try:
        data = json.loads(content)
        choice = data["choices"][0]
        text = choice["message"].get("content")
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return {
            "text": "" if text is None else str(text),
            "finish_reason": str(choice.get("finish_reason")),
            "model": str(data.get("model")),
            "input_tokens": int(usage.get("prompt_tokens") or 0),
            "cached_tokens": int(details.get("cached_tokens") or 0),
            "output_tokens": int(usage.get("completion_tokens") or 0),
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"the answer is no chat completion: {content[:60]!r}") from None


def _retry_after(headers: Any) -> float | None:
    """Seconds, from Retry-After-Ms or Retry-After (a number or a date, RFC 9110). None if absent or unreadable."""
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(headers.get("retry-after-ms")) / 1000)
    value = headers.get("retry-after")
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _guess_tokens(body: dict[str, Any]) -> int:
    """Tokens of a request before it is made, to reserve them: four characters each, and a typical reply."""
    return sum(len(message["content"]) for message in body["messages"]) // 4 + 60


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _split_url(url: str) -> tuple[str, str]:
    """The URL without its credentials, and the credentials (user:password, or "")."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ConfigError(
            "partner.openai.base_url must be like http://localhost:8000/v1: http or https, a host, and no query."
        )
    userinfo, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/"), unquote(userinfo)
