"""float32 in Megatron. slime trains in bfloat16 or float16 alone; on a CPU both are slow, and their rounding would hide in every comparison
what a float32 run shows to seven digits. With `--sglang-dtype bfloat16` Megatron stores weights as on a GPU.

The weights stay inside the wrapper that Megatron puts around half-precision modules, so that all of slime runs as it does; the wrapper's
conversion of the weights is what is left out.
"""

from argparse import Namespace
from types import ModuleType
from typing import Any

import torch

from slim_rl.backends.slime.driver import SECOND_WEIGHTS
from slime_cpu import weights


def install(module: ModuleType) -> None:
    """Has `megatron.core.transformer.module` leave weights in float32 as they are."""
    base: Any = module.MegatronModule  # type: ignore[attr-defined]
    convert = base.bfloat16
    base.bfloat16 = lambda self: self if self.config.params_dtype == torch.float32 else convert(self)


def init(args: Namespace) -> None:
    """slime's ``--custom-megatron-init-path``: Megatron computes with `train.threads`, keeps activations, and has one copy of the weights, in float32.

    Packs are small here, and to recompute activations takes a quarter of a step's operations.
    """
    torch.set_num_threads(args.slim_rl.get("train", {}).get("threads", 1))
    args.recompute_granularity = args.recompute_method = None
    if not any(getattr(args, name, False) for name in SECOND_WEIGHTS):
        weights.in_place()
    if getattr(args, "sglang_dtype", None) != "bfloat16":
        args.params_dtype = torch.float32
