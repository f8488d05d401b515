"""The policy over slime's engines. It keeps the engine's metadata of each turn (`metas`) for slime's sample."""

from __future__ import annotations

import zlib
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any

from slime.rollout.sglang_rollout import GenerateState
from slime.utils.types import Sample

from slim_rl.backends.slime.compat import build_sglang_meta_trace_attrs, trace_span
from slim_rl.backends.slime.setup import RolloutContext
from slim_rl.dialogue.policy import Sampled
from slim_rl.policies.served import Read, sample_turn
from slim_rl.policies.sglang import read, read_scored, request, scoring


class SlimePolicy:
    """The policy of one game.

    Args:
        sampling_params: slime's, copied; the dict given is shared by all samples of an evaluation.
        samples: by routing key; two under self-play, else one.

    Attributes:
        metas: by routing key, the engine's `meta_info` of each turn that it sampled, in their order.
    """

    def __init__(
        self,
        args: Namespace,
        process: RolloutContext,
        sampling_params: Mapping[str, Any],
        samples: Mapping[str, Sample],
    ) -> None:
        self.args, self.samples = args, samples
        self.metas: dict[str, list[dict[str, Any]]] = {key: [] for key in samples}
        self.state = GenerateState(args)
        self.post, self.patience = process.post, process.config.slime.engine_retry_seconds
        stops = {*(sampling_params.get("stop_token_ids") or ()), *process.chat.stop_ids}
        self.sampling = {**sampling_params, "stop_token_ids": sorted(stops)}
        self.url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        self.sticky = getattr(args, "router_policy", None) == "consistent_hashing"

    @property
    def identity(self) -> dict[str, Any]:
        sampling = {name: self.sampling.get(name) for name in ("temperature", "top_p", "top_k")}
        return {"engine": "sglang", "model": str(self.args.hf_checkpoint), **sampling}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        body = request(input_ids, self._sampling(key, len(input_ids)), max_tokens)
        return self._keep_meta(await self._turn(body, read, key), key)

    async def score(self, input_ids: list[int], turn: Sampled, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        return await self._turn(scoring(input_ids, turn.ids), partial(read_scored, forced=turn), key)

    async def score_forced(self, input_ids: list[int], forced: Sampled, key: str) -> Sampled:
        """Returns a forced turn (`dialogue.interventions`) with the engine's logprobs.

        slime's importance weights use the logprobs: with 0.0 almost nothing would be learned from the turn.
        """
        return self._keep_meta(await self.score(input_ids, forced, key), key)

    def _keep_meta(self, sampled: Sampled, key: str) -> Sampled:
        """Keeps the engine's metadata of a turn of the dialogue; returns the turn."""
        if sampled.finish != "abort":
            self.metas[key].append(sampled.meta)
        return sampled

    async def _turn(self, body: dict[str, Any], read: Read, key: str) -> Sampled:
        sample = self.samples[key]
        if getattr(self.args, "use_rollout_routing_replay", False):
            body["return_routed_experts"] = True
        headers = {"X-SMG-Routing-Key": sample.session_id} if self.sticky else None

        async def once(body: dict[str, Any]) -> Any:
            most = body["sampling_params"]["max_new_tokens"]
            with trace_span(sample, "sglang_generate", attrs={"max_new_tokens": most}) as span:
                answer = await self.post(self.url, body, headers)
                span.update(build_sglang_meta_trace_attrs(answer["meta_info"]))
            return answer

        return await sample_turn(once, body, read, self.patience, lambda: self.state.aborted)

    def _sampling(self, key: str, position: int) -> dict[str, Any]:
        """With deterministic inference, its own seed for every turn of every seat."""
        if "sampling_seed" not in self.sampling:
            return self.sampling
        seat = key.rpartition("/")[2] if len(self.samples) > 1 else ""
        seed = zlib.crc32(f"{self.sampling['sampling_seed']}/{seat}/{position}".encode()) >> 1
        return {**self.sampling, "sampling_seed": seed}
