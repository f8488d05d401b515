"""The policy over slime's engines. It fills the `Sample` as it goes, so that

    sample.tokens is always what the engine has seen and said, up to the end of the last whole turn

and all that slime keeps by turn (mask, logprobs, top-p sets, routed experts, cache and speculation statistics, weight versions)
is written by slime's own `append_response_tokens`, at the moment it expects. A turn that was cut off by an abort leaves no trace.
"""

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
from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.dialogue.record import StopReason
from slim_rl.policies.served import Read, sample_turn
from slim_rl.policies.sglang import read, read_scored, request, scoring


class SlimePolicy:
    """The policy of one attempt at one game.

    Args:
        sampling_params: slime's, copied; the dict given is shared by all samples of an evaluation.
        samples: by routing key; two under self-play, else one. Each holds its dialogue so far: nothing for a new game.
        new_weights: what to do when the engine's weights change between two turns, those before an abort included.

    Attributes:
        outdated: whether they have changed and the game is to restart.
    """

    def __init__(
        self,
        args: Namespace,
        process: RolloutContext,
        sampling_params: Mapping[str, Any],
        samples: Mapping[str, Sample],
        new_weights: str,
    ) -> None:
        self.args, self.samples, self.new_weights = args, samples, new_weights
        self.state = GenerateState(args)
        self.post, self.patience = process.post, process.config.slime.engine_patience
        stops = {*(sampling_params.get("stop_token_ids") or ()), *process.chat.stop_ids}
        self.sampling = {**sampling_params, "stop_token_ids": sorted(stops)}
        self.url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        self.sticky = getattr(args, "router_policy", None) == "consistent_hashing"
        self.outdated = False
        told = [version for sample in samples.values() for version in sample.weight_versions if version is not None]
        self._weights: str | None = told[-1] if told else None  # the last that an engine told

    @property
    def identity(self) -> dict[str, Any]:
        sampling = {name: self.sampling.get(name) for name in ("temperature", "top_p", "top_k")}
        return {"engine": "sglang", "model": str(self.args.hf_checkpoint), **sampling}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        body = request(input_ids, self._sampling(key, len(input_ids)), max_tokens)
        return await self._turn(body, read, input_ids, key)

    async def put(self, input_ids: list[int], said: Sampled, key: str) -> Sampled:
        """A turn that is put for the policy (`dialogue.interventions`). The engine tells its logprobs, which slime's importance weights
        are made of: with 0.0 for them next to nothing would be learned from it.
        """
        return await self._turn(scoring(input_ids, said.ids), partial(read_scored, put=said), input_ids, key)

    async def _turn(self, body: dict[str, Any], read: Read, input_ids: list[int], key: str) -> Sampled:
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

        sampled = await sample_turn(once, body, read, self.patience, lambda: self.state.aborted)
        if sampled.finish != "abort":
            self._check_weights(sampled)
            self._keep(sample, input_ids, sampled)
        return sampled

    def _sampling(self, key: str, position: int) -> dict[str, Any]:
        """With deterministic inference, its own seed for every turn of every seat."""
        if "sampling_seed" not in self.sampling:
            return self.sampling
        seat = key.rpartition("/")[2] if len(self.samples) > 1 else ""
        seed = zlib.crc32(f"{self.sampling['sampling_seed']}/{seat}/{position}".encode()) >> 1
        return {**self.sampling, "sampling_seed": seed}

    def _check_weights(self, sampled: Sampled) -> None:
        """SGLang aborts or finishes what it has before it takes new weights, so a turn is of one version, the one it names."""
        weights, before = sampled.meta.get("weight_version"), self._weights
        if weights is None:
            return
        self._weights = weights
        if before is None or weights == before or self.new_weights == "keep":
            return
        if self.new_weights == "mask":
            for sample in self.samples.values():
                sample.loss_mask = [0] * sample.response_length
            return
        self.outdated = True
        raise PolicyFailure(f"the weights changed from {before} to {weights}", StopReason.ABORTED)

    def _keep(self, sample: Sample, input_ids: list[int], sampled: Sampled) -> None:
        if not sample.tokens:
            sample.tokens = list(input_ids)
        try:
            if heard := input_ids[len(sample.tokens) :]:
                sample.append_response_tokens(self.args, tokens=heard, trainable=False)
            sample.append_response_tokens(
                self.args, tokens=sampled.ids, log_probs=sampled.logprobs, trainable=True, meta_info=sampled.meta
            )
        except ValueError as error:  # what else the engine returned does not fit its tokens
            raise PolicyFailure(f"slime cannot keep the engine's answer: {error}") from error
