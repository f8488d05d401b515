"""The policy as verl serves it: token ids to its server manager, sampled ids and logprobs back."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from slim_rl.dialogue.players import Policy, PolicyFailure, Sampled

_ABORTED = ("aborted", "abort")  # verl's word for vLLM; with SGLang it passes on the engine's own


class ServerPolicy(Policy):
    """Samples turns of one dialogue from verl's `LLMServerClient` (SGLang or vLLM behind it).

    Attributes:
        seconds: time spent sampling.
        preempted: how often the engine put a request off; -1 if it does not say.
        versions: the weights' steps that the turns were sampled from.
    """

    def __init__(
        self, server: Any, sampling_params: Mapping[str, Any], stop_ids: Sequence[int], identity: Mapping[str, Any]
    ) -> None:
        self.server, self.stop_ids, self.identity = server, list(stop_ids), dict(identity)  # type: ignore[misc]
        self.params = {**sampling_params, "logprobs": True, "stop_token_ids": self.stop_ids}
        self.seconds, self.preempted = 0.0, -1
        self.versions: list[int] = []

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        output = await self._generate(input_ids, {**self.params, "max_tokens": max_tokens}, key)
        fields = output.extra_fields
        self.versions += [
            fields[key] for key in ("min_global_steps", "max_global_steps") if fields.get(key) is not None
        ]
        ids = list(output.token_ids)
        if output.stop_reason in _ABORTED:
            return Sampled(ids, list(output.log_probs or []), "abort")
        if output.log_probs is None:
            raise PolicyFailure("verl gave no logprobs; set actor_rollout_ref.rollout.calculate_log_probs=true.")
        # verl says "completed" for a turn that vLLM cut, and asks SGLang for a token less
        cut = output.stop_reason == "length" or len(ids) >= max_tokens
        return Sampled(ids, list(output.log_probs), "length" if cut else "stop")

    async def _generate(self, ids: list[int], params: Mapping[str, Any], key: str) -> Any:
        began = time.monotonic()
        try:
            output = await self.server.generate(request_id=key, prompt_ids=list(ids), sampling_params=dict(params))
        except Exception as error:
            # a remote engine can raise anything, and an exception out of a session fails its whole group
            raise PolicyFailure(f"verl's server failed: {type(error).__name__}: {error}") from error
        finally:
            self.seconds += time.monotonic() - began
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        return output
