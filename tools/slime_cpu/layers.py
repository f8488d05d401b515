"""Megatron's own layers under Transformer Engine's names: a norm and a linear layer in one, and attention within packed sequences.

Transformer Engine has no CPU. Megatron's local layers compute the same, but slime converts checkpoints by Transformer Engine's parameter
names only, and trains on packed sequences, which the local attention does not know.
"""

from argparse import Namespace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as functional
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class NormedLinear(ColumnParallelLinear):  # type: ignore[misc]
    """An RMS norm before a linear layer, whose weight is the layer's own `layer_norm_weight`."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, **kwargs: Any) -> None:
        kwargs.pop("skip_weight_param_allocation", None)
        super().__init__(input_size, output_size, config=config, **kwargs)
        self.eps = config.layernorm_epsilon
        weight: Any = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
        weight.tensor_model_parallel = False
        self.layer_norm_weight = weight

    def forward(self, given: Any, *args: Any, **kwargs: Any) -> Any:
        normed = functional.rms_norm(given, given.shape[-1:], self.layer_norm_weight, self.eps)
        return super().forward(normed, *args, **kwargs)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> Any:
        state = self.state_dict(prefix="", keep_vars=True)
        weights = {name: value for name, value in state.items() if not name.endswith("_extra_state")}
        return make_sharded_tensors_for_checkpoint(weights, prefix, {"weight": 0, "bias": 0}, sharded_offsets)


class PackedAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention, within each of the packed sequences."""

    def __init__(self, config: Any, *args: Any, softmax_scale: float | None = None, **kwargs: Any) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale

    def forward(self, query: Any, key: Any, value: Any, *args: Any, packed_seq_params: Any, **kwargs: Any) -> Any:
        bounds = packed_seq_params.cu_seqlens_q.tolist()
        spans = [slice(*span) for span in pairwise(bounds)]
        return torch.cat([self._one(query[span], key[span], value[span]) for span in spans])

    def _one(self, *sequence: Any) -> Any:
        heads = (part.transpose(0, 1)[None] for part in sequence)  # token, head, size -> 1, head, token, size
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True, scale=self.scale, enable_gqa=True)
        return seen[0].transpose(0, 1).flatten(1)


def layer_spec(args: Namespace, config: Any, vp_stage: int | None = None) -> Any:
    """Megatron's ``--spec``: a transformer layer of these modules."""
    norm = WrappedTorchNorm if args.qk_layernorm else IdentityOp
    attention = SelfAttentionSubmodules(
        linear_qkv=NormedLinear,
        core_attention=PackedAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=norm,
        k_layernorm=norm,
    )
    mlp = MLPSubmodules(linear_fc1=NormedLinear, linear_fc2=RowParallelLinear)
    submodules = TransformerLayerSubmodules(
        self_attention=ModuleSpec(SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention),
        self_attn_bda=get_bias_dropout_add,
        mlp=ModuleSpec(MLP, submodules=mlp),
        mlp_bda=get_bias_dropout_add,
    )
    return ModuleSpec(TransformerLayer, submodules=submodules)
