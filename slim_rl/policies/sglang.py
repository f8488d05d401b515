"""Policy behind an SGLang server: token ids over `/generate`.

The slime hook uses the same `request` and `read` for its engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slim_rl.dialogue.policy import Sampled
from slim_rl.policies.served import ServedPolicy


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


def scoring(input_ids: list[int], ids: list[int]) -> dict[str, Any]:
    """Returns the body of a `/generate` call that only scores `ids` after `input_ids`, always at temperature 1."""
    return {
        "input_ids": [*input_ids, *ids],
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": len(input_ids) - 1,
    }


def read_scored(answer: Any, forced: Sampled) -> Sampled:
    """Returns a turn that was forced on the policy, with the logprobs in the answer to `scoring`."""
    meta = answer["meta_info"]
    scores = meta["input_token_logprobs"][-len(forced.ids) :]
    if [item[1] for item in scores] != forced.ids:
        raise LookupError("the engine returned the logprobs of other tokens")
    finish = "abort" if meta["finish_reason"]["type"] == "abort" else forced.finish
    return replace(forced, logprobs=[item[0] for item in scores], finish=finish, meta=meta)


class SGLangPolicy(ServedPolicy):
    """See `ServedPolicy`."""

    engine, path = "sglang", "/generate"
    read = staticmethod(read)

    def request(self, input_ids: list[int], max_tokens: int) -> dict[str, Any]:
        ending = {"stop_token_ids": self.stop_ids, "skip_special_tokens": False, "no_stop_trim": True}
        return request(input_ids, self.sampling | ending, max_tokens)
