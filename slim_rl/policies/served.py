"""A policy behind an inference server: the exchange of one turn, and what SGLang's and vLLM's policies have in common.

A turn is sampled again while the engine errs and patience lasts. That is safe: a turn that was not answered has left no trace in the
dialogue.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, ClassVar

import aiohttp
import orjson

from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.errors import Diverged
from slim_rl.event_loops import PerLoop

Post = Callable[[dict[str, Any]], Awaitable[Any]]  # one try: the body in, the answer's JSON out; raises on any error
Read = Callable[[Any], Sampled]  # the turn in an answer's JSON; raises as indexing does where there is none

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds
_PASSING = (408, 425, 429)  # client errors that pass by themselves
_JSON = {"Content-Type": "application/json"}


class EngineError(Exception):
    """The engine answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}, {' '.join(text.split())[:300]}")
        self.status = status


async def sample_turn(
    post: Post, body: dict[str, Any], read: Read, patience: float, aborted: Callable[[], bool] = lambda: False
) -> Sampled:
    """Samples one turn, trying again after errors and after an abort that was not asked for here (an engine that is given new
    weights aborts what it has).

    Args:
        patience: seconds to wait between tries, all waits together. Time that the engine itself takes does not count: one that
            is given new weights may be silent for long.
        aborted: whether the dialogue is to stop; the turn then comes back with finish "abort", even if the engine reports another.

    Raises:
        PolicyFailure: the engine refused the request, or patience ran out.
        Diverged: the engine's model has no finite probability for any token of the turn.
    """
    wait, waited = _FIRST_WAIT, 0.0
    while True:
        if aborted():
            return Sampled([], [], "abort")
        try:
            sampled = _turn(await post(body), read)
            if sampled.finish != "abort":
                return sampled
            error: Exception = RuntimeError("the engine aborted the turn")
        except (PolicyFailure, Diverged):
            raise
        except Exception as raised:
            error = raised
        if aborted():
            return Sampled([], [], "abort")
        if _is_refusal(error):
            raise PolicyFailure(f"the engine refused the request: {_reason(error)}") from error
        if waited + wait > patience:
            raise PolicyFailure(f"the engine gave no turn in {patience:g} s of waiting: {_reason(error)}") from error
        await asyncio.sleep(wait)
        waited += wait
        wait = min(2 * wait, _LONGEST_WAIT)


def _turn(answer: Any, read: Read) -> Sampled:
    """The sampled turn in an answer. Raises ValueError if there is none."""
    try:
        sampled = read(answer)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"no turn in the engine's answer {str(answer)[:200]!r}") from error
    # JSON has no NaN: some engines write null
    missing = sum(logprob is None or not isfinite(logprob) for logprob in sampled.logprobs)
    if missing and missing == len(sampled.logprobs):
        raise Diverged("The model's probabilities of a next token are not finite numbers: its weights are unusable.")
    if missing:
        raise PolicyFailure(
            f"the engine returned no finite logprob for {missing} of {len(sampled.logprobs)} sampled tokens"
        )
    # An engine ends a turn for reasons of its own too, such as "repetition": the turn is whole, and cut.
    return sampled if sampled.finish in ("stop", "length", "abort") else replace(sampled, finish="length")


def _is_refusal(error: Exception) -> bool:
    """Whether the same request would be answered the same way again. Knows httpx's errors too, which slime's `post` raises."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in _PASSING


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"


class Connection:
    """HTTP to engines. Built for thousands of requests in flight: httpx, which slime's own client
    is made of, looks through all its connections for each of them at every request.
    """

    def __init__(self) -> None:
        self._sessions = PerLoop(_session, aiohttp.ClientSession.close)

    async def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """One request, tried once. Raises EngineError for an error status, and aiohttp's errors."""
        # Patience, not a timeout, bounds a turn: a long queue is not an error.
        session = await self._sessions.here()
        async with session.post(url, data=orjson.dumps(body), headers={**_JSON, **(headers or {})}) as response:
            answer = await response.read()
            if response.status >= 400:
                raise EngineError(response.status, answer.decode("utf-8", "replace"))
            return orjson.loads(answer)


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


class ServedPolicy(ABC):
    """A running server (or a router before several) as a policy, for play and evaluation outside a trainer. Token ids cross the
    wire, never text.

    Args:
        url: its address, such as ``http://127.0.0.1:30000``.
        model: the name it serves the model by; SGLang does without.
        temperature, top_p: of sampling; logprobs are of the tempered distribution.
        stop_ids: tokens that end a turn, in addition to the model's own eos (`Chat.stop_ids`).
        patience: see `sample_turn`.
    """

    engine: ClassVar[str]
    path: ClassVar[str]  # of the server's call

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_ids: Sequence[int] = (),
        patience: float = 60.0,
    ) -> None:
        self.url, self.model, self.stop_ids, self.patience = url.rstrip("/"), model, list(stop_ids), patience
        self.sampling = {"temperature": temperature, "top_p": top_p}
        self._connection = Connection()

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": self.engine, "model": self.model, **self.sampling}

    @abstractmethod
    def request(self, input_ids: list[int], max_tokens: int) -> dict[str, Any]:
        """The body of a call that samples at most `max_tokens` after `input_ids`."""

    @staticmethod
    @abstractmethod
    def read(answer: Any) -> Sampled:
        """See `Read`."""

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""

        async def post(body: dict[str, Any]) -> Any:
            return await self._connection.post(f"{self.url}{self.path}", body, {"X-SMG-Routing-Key": key})

        return await sample_turn(post, self.request(input_ids, max_tokens), self.read, self.patience)
