"""A policy behind an SGLang server (or a router before several): token ids over `/generate`, never text.

`sample_turn` is the exchange itself, over any `post`; the slime hook makes it over slime's own. A turn is sampled again while
the engine errs and patience lasts. That is safe: a turn that was not answered has left no trace in the dialogue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from slim_rl.policies.base import PolicyFailure, Sampled

Post = Callable[[dict[str, Any]], Awaitable[Any]]  # one try: the body in, the answer's JSON out; raises on any error

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds
_PASSING = (408, 425, 429)  # client errors that pass by themselves


def request(input_ids: list[int], sampling: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """The body of a `/generate` call that samples at most `max_tokens` after `input_ids`."""
    return {
        "input_ids": input_ids,
        "sampling_params": {**sampling, "max_new_tokens": max_tokens},
        "return_logprob": True,
    }


def read(answer: Any) -> Sampled:
    """The sampled turn in an answer of `/generate`. Raises ValueError if it is not one."""
    try:
        meta = answer["meta_info"]
        finish = meta["finish_reason"]["type"]
        drawn = meta.get("output_token_logprobs") or []
        ids, logprobs = [item[1] for item in drawn], [item[0] for item in drawn]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no turn in the engine's answer {str(answer)[:200]!r}") from error
    if finish not in ("stop", "length", "abort"):
        raise ValueError(f"the engine ended a turn for a reason unknown here, {finish!r}")
    return Sampled(ids, logprobs, finish, meta)


async def sample_turn(
    post: Post, body: dict[str, Any], patience: float, called_off: Callable[[], bool] = lambda: False
) -> Sampled:
    """Samples one turn, trying again after errors and after an abort that nobody here asked for (an engine that is given new
    weights aborts what it has).

    Args:
        patience: seconds to keep trying after the first error.
        called_off: whether the dialogue is to stop; the turn then comes back with finish "abort", whatever the engine says.

    Raises:
        PolicyFailure: the engine refused the request, or patience ran out.
    """
    wait, deadline = _FIRST_WAIT, None
    while True:
        if called_off():
            return Sampled([], [], "abort")
        try:
            sampled = read(await post(body))
            if sampled.finish != "abort":
                return sampled
            error: Exception = RuntimeError("the engine aborted the turn")
        except Exception as raised:
            error = raised
        if called_off():
            return Sampled([], [], "abort")
        if _is_refusal(error):
            raise PolicyFailure(f"the engine refused the request: {_reason(error)}") from error
        now = time.monotonic()
        deadline = deadline or now + patience
        if now + wait > deadline:
            raise PolicyFailure(f"the engine gave no turn within {patience:g} s: {_reason(error)}") from error
        await asyncio.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)


class SGLangPolicy:
    """A running SGLang server as a policy, for play and evaluation outside a trainer. Use as an async context manager.

    Args:
        url: the server's or router's address, such as ``http://127.0.0.1:30000``.
        model: its name, for records.
        temperature, top_p: of sampling; logprobs are of the tempered distribution.
        stop_ids: tokens that end a turn besides the model's own eos (`Chat.stop_ids`).
        patience: see `sample_turn`.
    """

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
        self.url, self.model, self.patience = url.rstrip("/"), model, patience
        self.sampling = {
            "temperature": temperature,
            "top_p": top_p,
            "stop_token_ids": list(stop_ids),
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        # Patience, not a timeout, bounds a turn: a long queue is no error.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=10.0), limits=httpx.Limits(max_connections=None)
        )

    @property
    def identity(self) -> dict[str, Any]:
        sampling = {name: self.sampling[name] for name in ("temperature", "top_p")}
        return {"engine": "sglang", "model": self.model, **sampling}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        async def post(body: dict[str, Any]) -> Any:
            response = await self._client.post(f"{self.url}/generate", json=body, headers={"X-SMG-Routing-Key": key})
            response.raise_for_status()
            return response.json()

        return await sample_turn(post, request(input_ids, self.sampling, max_tokens), self.patience)

    async def __aenter__(self) -> SGLangPolicy:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()


def _is_refusal(error: Exception) -> bool:
    """Whether the same request would be answered the same way again."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in _PASSING


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is None:
        return f"{type(error).__name__}: {error}"
    return f"status {response.status_code}, {' '.join(response.text.split())[:300]}"
