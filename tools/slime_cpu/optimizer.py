"""Checkpoints of torch's Adam in Megatron's distributed optimizer, which knows those of Transformer Engine and Apex only.

torch's has no state before its first step, where Megatron asks for one to read a checkpoint into; and its count of steps is a tensor for
each weight, where Megatron hands the same one to all, so that each would count it up.
"""

from types import ModuleType
from typing import Any

import torch


def install(module: ModuleType) -> None:
    """Changes `megatron.core.optimizer.distrib_optimizer`."""
    optimizer: Any = module.DistributedOptimizer  # type: ignore[attr-defined]
    state_dict, set_states = optimizer.state_dict, optimizer._set_main_param_and_optimizer_states

    def with_states(self: Any) -> Any:
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                if not self.optimizer.state[weight]:
                    zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                    self.optimizer.state[weight] = {"step": torch.tensor(0.0), **zeros}
        return state_dict(self)

    @torch.no_grad()  # weights in float32 are their own main weights: leaves
    def set_all_but_the_step(self: Any, weight: Any, tensors: Any) -> None:
        group, order = self.model_param_group_index_map[weight]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        step = state.pop("step")
        set_states(self, weight, tensors)
        state["step"] = step.clone()

    optimizer.state_dict, optimizer._set_main_param_and_optimizer_states = with_states, set_all_but_the_step
