"""The policy over slime's engines. It keeps the engine's metadata of each turn (`metas`) for slime's sample."""

from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any

from slime.rollout.sglang_rollout import GenerateState
from slime.utils.types import Sample

from slim_rl.backends.slime.context import RolloutContext
from slim_rl.dialogue.players import Policy, Sampled
from slim_rl.policies.served import read, request, sample_turn


class SlimePolicy(Policy):
    """The policy of one game.

    Args:
        sampling_params: slime's, copied; the dict given is shared by all samples of an evaluation.
        samples: by routing key; two under self-play, else one.

    Attributes:
        metas: by routing key, the engine's `meta_info` of each turn that it sampled, in their order; an aborted game's are not read.
    """

    def __init__(
        self,
        args: Namespace,
        context: RolloutContext,
        sampling_params: Mapping[str, Any],
        samples: Mapping[str, Sample],
    ) -> None:
        self.args, self.context, self.samples = args, context, samples
        self.metas: dict[str, list[dict[str, Any]]] = {key: [] for key in samples}
        self.state = GenerateState(args)
        stops = {*(sampling_params.get("stop_token_ids") or ()), *context.chat.stop_ids}
        self.sampling = {**sampling_params, "stop_token_ids": sorted(stops)}
        self.url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"

    @property
    def identity(self) -> dict[str, Any]:
        sampling = {name: self.sampling.get(name) for name in ("temperature", "top_p", "top_k")}
        return {"engine": "sglang", "model": str(self.args.hf_checkpoint), **sampling}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.players.Policy`."""
        body = request(input_ids, self.sampling, max_tokens)
        hashes = getattr(self.args, "router_policy", None) == "consistent_hashing"
        headers = {"X-SMG-Routing-Key": self.samples[key].session_id or key} if hashes else None
        if getattr(self.args, "use_rollout_routing_replay", False):
            body["return_routed_experts"] = True
        post = partial(self.context.client.post, self.url, headers=headers)
        patience = self.context.config.slime.engine_retry_seconds
        sampled = await sample_turn(post, body, read, patience, lambda: self.state.aborted)
        self.metas[key].append(sampled.meta)
        return sampled
