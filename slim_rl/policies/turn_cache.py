"""Keys and values of the dialogues under way, kept between their turns: a turn computes only what was said since the last one.

    a dialogue's kept ids are always a prefix of its next input, or they are dropped

For models whose layers all attend to everything; for others nothing is kept. When the weights change, what was kept is worthless:
call `clear`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer


@dataclass(slots=True)
class _Kept:
    ids: list[int]
    states: torch.Tensor  # (layers, 2, heads, tokens, head size): keys and values


class TurnCache:
    """Drops the least recently used dialogues when there is no room.

    Args:
        most_bytes: memory to use, on the model's device.
    """

    def __init__(self, most_bytes: int = 2**30) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    @staticmethod
    def suits(model: PreTrainedModel) -> bool:
        """Whether every layer of the model attends to all that came before."""
        config = model.config.get_text_config(decoder=True)
        kinds = getattr(config, "layer_types", None) or ["full_attention"]
        return set(kinds) == {"full_attention"} and not getattr(config, "num_kv_shared_layers", 0)

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def take(self, key: str, input_ids: Sequence[int]) -> torch.Tensor | None:
        """The states of the beginning of `input_ids`, (layers, 2, heads, tokens, head size); None if none are kept. At least one
        id is always left to compute.
        """
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._bytes -= kept.states.nbytes
        length = len(kept.ids)
        if length >= len(input_ids) or kept.ids != list(input_ids[:length]):
            return None
        return kept.states

    def keep(self, key: str, ids: list[int], states: torch.Tensor) -> None:
        """Keeps the states of `ids`, one a token."""
        self._kept[key] = _Kept(ids, states)
        self._bytes += states.nbytes
        while self._bytes > self.most_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.states.nbytes


class _RoomyLayer(DynamicLayer):
    """A layer's keys and values in memory with room for more tokens: one more is written, and the rest not copied.

    Args:
        memory: (2, rows, heads, tokens and room, size).
        used: tokens that are there.
    """

    ROOM = 64  # tokens

    def __init__(self, memory: torch.Tensor, used: int) -> None:
        super().__init__()
        self.lazy_initialization(memory[0], memory[1])
        self._memory = memory
        self.keys, self.values = memory[..., :used, :]

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See `DynamicLayer.update`."""
        start = self.keys.shape[-2]
        end = start + keys.shape[-2]
        if end > self._memory.shape[-2]:
            roomy = self._memory.new_empty((*self._memory.shape[:-2], end + self.ROOM, self._memory.shape[-1]))
            roomy[..., :start, :] = self._memory[..., :start, :]
            self._memory = roomy
        self._memory[0, ..., start:end, :], self._memory[1, ..., start:end, :] = keys, values
        self.keys, self.values = self._memory[..., :end, :]
        return self.keys, self.values


def batched(rows: Sequence[torch.Tensor | None]) -> Cache:
    """The states of rows, at least one of which has some, as one cache, padded on the left."""
    lengths = [0 if row is None else row.shape[3] for row in rows]
    longest = max(lengths)
    some = next(row for row in rows if row is not None)
    layers, _, heads, _, size = some.shape
    states = some.new_empty((layers, 2, len(rows), heads, longest + _RoomyLayer.ROOM, size))
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        # What the memory held may be no number, and 0 times that is none either.
        states[:, :, index, :, : longest - length] = 0
        if row is not None:
            states[:, :, index, :, longest - length : longest] = row
    return Cache(layers=[_RoomyLayer(layer, longest) for layer in states])


def unbatched(cache: Cache, mask: torch.Tensor) -> list[torch.Tensor]:
    """Each row's states where `mask`, (rows, tokens), is true."""
    layers: list[Any] = list(cache.layers)
    parts = [part for layer in layers for part in (layer.keys, layer.values)]
    rows = []
    for row, present in enumerate(mask.bool()):
        places = present.nonzero().squeeze(1)
        first, last = int(places[0]), int(places[-1])
        whole = last - first + 1 == len(places)  # a slice is much faster than single places
        chosen = slice(first, last + 1) if whole else places.to(parts[0].device)
        rows.append(torch.stack([part[row, :, chosen] for part in parts]).unflatten(0, (len(layers), 2)))
    return rows
