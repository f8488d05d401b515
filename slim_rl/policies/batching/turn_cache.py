"""Cache of keys and values between a dialogue's turns, so that a turn computes only its new input.

Invariant: a dialogue's cached ids are a prefix of its next input, or they are dropped.

Only for models whose layers all attend to everything. When the weights change, call `clear`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer


@dataclass(slots=True)
class _Kept:
    ids: list[int]
    states: torch.Tensor  # (layers, 2, heads, tokens, head size): keys and values


class TurnCache:
    """Cache that drops the least recently used dialogues when it is full.

    Args:
        most_bytes: memory limit, on the model's device.
    """

    def __init__(self, most_bytes: int = 2**30) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    @staticmethod
    def suits(model: PreTrainedModel) -> bool:
        """Returns True if every layer of the model attends to all earlier tokens."""
        config = model.config.get_text_config(decoder=True)
        kinds = {*(getattr(config, "layer_types", None) or ()), "full_attention"}
        # The cache made for an older config (a `sliding_window`, and no kinds of layers) knows its layers.
        whole = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
        return whole and kinds == {"full_attention"} and not getattr(config, "num_kv_shared_layers", 0)

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def take(self, key: str, input_ids: Sequence[int]) -> torch.Tensor | None:
        """Removes and returns the states of the first of `input_ids`, (layers, 2, heads, tokens, head size), or None.

        At least one id is left to compute.
        """
        cached = self._kept.pop(key, None)
        if cached is None:
            return None
        self._bytes -= cached.states.nbytes
        length = len(cached.ids)
        if length >= len(input_ids) or cached.ids != list(input_ids[:length]):
            return None
        return cached.states

    def keep(self, key: str, ids: list[int], states: torch.Tensor) -> None:
        """Stores the states of `ids`, one per token."""
        self._kept[key] = _Kept(ids, states)
        self._bytes += states.nbytes
        while self._bytes > self.most_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.states.nbytes
