"""A policy behind a vLLM server: token ids over its OpenAI-compatible `/v1/completions`, never text.

The prompt is a list of ids, and `return_token_ids` has the answer hold the sampled ones; a server too old to know it answers
without, which ends the dialogue and says so. What the model's generation_config.json would add to the sampling (a top-k, a
repetition penalty) is switched off in every request, for training does not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.policies.sglang import Connection, sample_turn


class VLLMPolicy:
    """A running vLLM server as a policy, for play and evaluation.

    Args:
        url: the server's address, such as ``http://127.0.0.1:8000``.
        model: the name it serves the model by.
        temperature, top_p: of sampling. A server that runs with ``--logprobs-mode processed_logprobs`` gives logprobs of the
            tempered distribution, as this project keeps them; others give the model's own.
        stop_ids: tokens that end a turn, in addition to the model's own eos (`Chat.stop_ids`).
        patience: see `policies.sglang.sample_turn`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_ids: Sequence[int] = (),
        patience: float = 60.0,
    ) -> None:
        self.url, self.model, self.patience = url.rstrip("/"), model, patience
        self.sampling = {"temperature": temperature, "top_p": top_p}
        self._fixed = {
            "model": model,
            **self.sampling,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": list(stop_ids),
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        self._connection = Connection()

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": "vllm", "model": self.model, **self.sampling}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""

        async def post(body: dict[str, Any]) -> Any:
            return await self._connection.post(f"{self.url}/v1/completions", body, {"X-SMG-Routing-Key": key})

        body = {**self._fixed, "prompt": input_ids, "max_tokens": max_tokens}
        return await sample_turn(post, body, self.patience, read=read)

    async def close(self) -> None:
        await self._connection.close()


def read(answer: Any) -> Sampled:
    """The sampled turn in an answer of `/v1/completions`. Raises ValueError if it is not one."""
    try:
        choice = answer["choices"][0]
        ids, finish, logprobs = choice.get("token_ids"), choice["finish_reason"], choice["logprobs"]["token_logprobs"]
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no turn in the engine's answer {str(answer)[:200]!r}") from error
    if ids is None:
        raise PolicyFailure(
            "the server returns no token ids: it takes a vLLM that knows return_token_ids (0.10.2 or later)"
        )
    if finish not in ("stop", "length", "abort"):
        raise ValueError(f"the engine ended a turn for an unknown reason, {finish!r}")
    return Sampled(list(ids), [float(logprob) for logprob in logprobs], finish)
