"""Keys and values of rows that are decoded together, in one cache that is padded on the left.

Attention reads them in place, and each new token is written behind them: nothing is copied except when rows join or leave.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import create_causal_mask

# the argument by which a model takes its cache; renamed in transformers 5.24, which drops the old name in 5.40
CACHE = "cache" if "cache" in signature(create_causal_mask).parameters else "past_key_values"
_ROOM = 64  # tokens that can be written before all is copied to a larger place


class _States:
    """Tensor shared by all layers: (layers, 2, rows, heads, tokens and room, size)."""

    def __init__(self, states: torch.Tensor) -> None:
        self.states = states

    def make_room(self, tokens: int) -> None:
        *front, room, size = self.states.shape
        if tokens > room:
            roomy = self.states.new_empty((*front, tokens + _ROOM, size))
            roomy[..., :room, :] = self.states
            self.states = roomy


class _RoomyLayer(DynamicLayer):
    """Layer of a cache over shared states.

    Args:
        used: number of tokens in the states.
    """

    def __init__(self, shared: _States, layer: int, used: int) -> None:
        super().__init__()
        self.shared, self._layer = shared, layer
        self.lazy_initialization(shared.states, shared.states)
        self.keys, self.values = shared.states[layer, ..., :used, :]

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See `DynamicLayer.update`."""
        start = self.keys.shape[-2]
        end = start + keys.shape[-2]
        self.shared.make_room(end)
        states = self.shared.states[self._layer]
        states[0, ..., start:end, :], states[1, ..., start:end, :] = keys, values
        self.keys, self.values = states[..., :end, :]
        return self.keys, self.values


def batched(rows: Sequence[torch.Tensor | None]) -> Cache:
    """Returns the states of rows, each (layers, 2, heads, tokens, size) or None, but not all, as one cache."""
    lengths = [0 if row is None else row.shape[3] for row in rows]
    longest = max(lengths)
    some = next(row for row in rows if row is not None)
    layers, _, heads, _, size = some.shape
    states = some.new_empty((layers, 2, len(rows), heads, longest + _ROOM, size))
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        # What is allocated may hold NaN, and 0 times NaN is NaN.
        states[:, :, index, :, : longest - length] = 0
        if row is not None:
            states[:, :, index, :, longest - length : longest] = row
    shared = _States(states)
    return Cache(layers=[_RoomyLayer(shared, layer, longest) for layer in range(layers)])


def unbatched(cache: Cache, mask: torch.Tensor) -> list[torch.Tensor]:
    """Returns each row's states at the places where `mask`, (rows, tokens), is true: (layers, 2, heads, tokens, size)."""
    layers: list[Any] = list(cache.layers)

    def states_of(row: int, places: Any) -> torch.Tensor:
        if isinstance(layers[0], _RoomyLayer):
            return layers[0].shared.states[:, :, row, :, places].clone()
        parts = [torch.stack((layer.keys[row, :, places], layer.values[row, :, places])) for layer in layers]
        return torch.stack(parts)

    rows = []
    for row, present in enumerate(mask.bool()):
        places = present.nonzero().squeeze(1)
        first, last = int(places[0]), int(places[-1])
        whole = last - first + 1 == len(places)  # a slice is much faster than single places
        rows.append(states_of(row, slice(first, last + 1) if whole else places.to(layers[0].device)))
    return rows
