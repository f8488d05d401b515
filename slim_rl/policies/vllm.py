"""Policy behind a vLLM server: token ids over its OpenAI-compatible `/v1/completions`.

The prompt is a list of ids, and `return_token_ids` asks for the sampled ones; a server too old to know it ends the dialogue with an error.
Each request switches off the sampling settings of the model's generation_config.json (top-k, repetition penalty), unknown to training.
"""

from __future__ import annotations

from typing import Any

from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.policies.served import ServedPolicy


class VLLMPolicy(ServedPolicy):
    """See `ServedPolicy`.

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
            raise PolicyFailure(
                "the server returns no token ids: use vLLM 0.10.2 or later, which knows return_token_ids"
            )
        return Sampled(list(ids), list(logprobs), finish)
