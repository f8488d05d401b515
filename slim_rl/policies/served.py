"""Policy behind an inference server, SGLang or vLLM: the exchange of one turn. Token ids cross the wire, never text.

A turn is sampled again after an engine error until the retry time is over. That is safe: an unanswered turn leaves no trace in the dialogue.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, ClassVar

from slim_rl.dialogue.players import Policy, PolicyFailure, Sampled
from slim_rl.errors import Diverged
from slim_rl.http import Client, EngineError

Post = Callable[[dict[str, Any]], Awaitable[Any]]  # one request: from body to the answer's JSON; raises on any error
Read = Callable[[Any], Sampled]  # from an answer's JSON to its turn; raises as indexing does without one

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds
_PASSING = (408, 425, 429)  # temporary client errors


async def sample_turn(
    post: Post, body: dict[str, Any], read: Read, retry_seconds: float, aborted: Callable[[], bool] = lambda: False
) -> Sampled:
    """Samples one turn, and retries after errors and unrequested aborts.

    An engine aborts its turns when it gets new weights.

    Args:
        retry_seconds: longest sum of the waits between tries. The engine's time does not count: it may be silent for long during a
            weight update.
        aborted: returns True if the dialogue should stop; the turn then has finish "abort", whatever the engine reports.

    Raises:
        PolicyFailure: the engine refused the request, or the retry time is over.
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
        if waited + wait > retry_seconds:
            raise PolicyFailure(
                f"the engine gave no turn in {retry_seconds:g} s of waiting: {_reason(error)}"
            ) from error
        await asyncio.sleep(wait)
        waited += wait
        wait = min(2 * wait, _LONGEST_WAIT)


def _turn(answer: Any, read: Read) -> Sampled:
    """Returns the sampled turn in an answer.

    Raises:
        ValueError: the answer has no turn.
        PolicyFailure: not every sampled token has its id and a finite logprob.
        Diverged: none has a finite logprob.
    """
    try:
        sampled = read(answer)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"no turn in the engine's answer {str(answer)[:200]!r}") from error
    ids, logprobs = sum(isinstance(each, int) and each >= 0 for each in sampled.ids), len(sampled.logprobs)
    count = sampled.meta.get("completion_tokens", ids)  # the engine's own count, the end token included
    if sampled.finish != "abort" and not (ids == logprobs == count > 0):
        raise PolicyFailure(f"the engine returned {ids} token ids and {logprobs} logprobs for {count} sampled tokens")
    # JSON has no NaN: some engines write null
    missing = sum(logprob is None or not isfinite(logprob) for logprob in sampled.logprobs)
    if missing and missing == len(sampled.logprobs):
        raise Diverged("The model's probabilities of a next token are not finite numbers: its weights are unusable.")
    if missing:
        raise PolicyFailure(
            f"the engine returned no finite logprob for {missing} of {len(sampled.logprobs)} sampled tokens"
        )
    # An engine may end a turn for other reasons, such as "repetition": that is a turn cut at a limit.
    return sampled if sampled.finish in ("stop", "length", "abort") else replace(sampled, finish="length")


def _is_refusal(error: Exception) -> bool:
    """Returns True if the same request would fail again. Reads httpx's errors too, which slime's `post` raises."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in _PASSING


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"


class ServedPolicy(Policy):
    """Policy behind a running server or router, for play and evaluation outside a trainer.

    Args:
        url: server address, such as ``http://127.0.0.1:30000``.
        model: served model name; SGLang needs none.
        temperature, top_p: sampling parameters; logprobs are of the tempered distribution.
        stop_ids: tokens that end a turn, in addition to the model's eos (`Chat.stop_ids`).
        retry_seconds: see `sample_turn`.
    """

    engine: ClassVar[str]
    path: ClassVar[str]  # URL path of the server's call

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_ids: Sequence[int] = (),
        retry_seconds: float = 60.0,
    ) -> None:
        self.url, self.model, self.stop_ids = url.rstrip("/"), model, list(stop_ids)
        self.retry_seconds = retry_seconds
        self.sampling = {"temperature": temperature, "top_p": top_p}
        self._client = Client()

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": self.engine, "model": self.model, **self.sampling}

    @abstractmethod
    def request(self, input_ids: list[int], max_tokens: int) -> dict[str, Any]:
        """Returns the body of a call that samples at most `max_tokens` after `input_ids`."""

    @staticmethod
    @abstractmethod
    def read(answer: Any) -> Sampled:
        """See `Read`."""

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.players.Policy`."""
        post = partial(self._client.post, f"{self.url}{self.path}", headers={"X-SMG-Routing-Key": key})
        return await sample_turn(post, self.request(input_ids, max_tokens), self.read, self.retry_seconds)


# --- SGLang's `/generate`, whose `request` and `read` the slime hook uses for its engines


def request(input_ids: list[int], sampling: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Returns the body of a `/generate` call that samples at most `max_tokens` after `input_ids`."""
    return {
        "input_ids": input_ids,
        "sampling_params": {**sampling, "max_new_tokens": max_tokens},
        "return_logprob": True,
    }


def read(answer: Any) -> Sampled:
    """Returns the sampled turn in an answer of `/generate`, and its meta_info."""
    meta = answer["meta_info"]
    drawn = meta.get("output_token_logprobs") or []
    return Sampled([item[1] for item in drawn], [item[0] for item in drawn], meta["finish_reason"]["type"], meta)


class SGLangPolicy(ServedPolicy):
    """See `ServedPolicy`."""

    engine, path = "sglang", "/generate"
    read = staticmethod(read)

    def request(self, input_ids: list[int], max_tokens: int) -> dict[str, Any]:
        ending = {"stop_token_ids": self.stop_ids, "skip_special_tokens": False, "no_stop_trim": True}
        return request(input_ids, self.sampling | ending, max_tokens)


class VLLMPolicy(ServedPolicy):
    """See `ServedPolicy`. vLLM's OpenAI-compatible `/v1/completions`.

    The prompt is a list of ids, and `return_token_ids` asks for the sampled ones; a server too old to know it ends the dialogue with an error.
    Each request switches off the sampling settings of the model's generation_config.json (top-k, repetition penalty), unknown to training.
    Without ``--logprobs-mode processed_logprobs`` a server returns logprobs at temperature 1, not of the tempered distribution.
    """

    engine, path = "vllm", "/v1/completions"

    def request(self, input_ids: list[int], max_tokens: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": input_ids,
            "max_tokens": max_tokens,
            **self.sampling,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": self.stop_ids,
            "logprobs": 0,  # only of the sampled token
            "return_token_ids": True,
            "skip_special_tokens": False,
        }

    @staticmethod
    def read(answer: Any) -> Sampled:
        choice = answer["choices"][0]
        ids, finish, logprobs = choice.get("token_ids"), choice["finish_reason"], choice["logprobs"]["token_logprobs"]
        if ids is None:
            raise PolicyFailure("the server returns no token ids: use vLLM 0.10.2 or later, which has return_token_ids")
        return Sampled(list(ids), list(logprobs), finish, answer.get("usage") or {})
