"""Batched decoding of turns, one token per turn and step. Between steps ended turns leave, and others join.

Invariant: a row's states are those of all its tokens except the last, in order and without gaps.

Rows can leave and join if every layer of the model attends to everything; with other models a batch runs to its end.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from slim_rl.errors import Diverged
from slim_rl.policies.batching.row_cache import CACHE, batched, unbatched

_LEAVE = 0.25  # share of the rows that ends before any of them leaves

# Draws each row's next token by the row's own random stream: logits (rows, vocabulary) to tokens and their logprobs, each (rows,).
Draw = Callable[[torch.Tensor, Sequence[random.Random]], tuple[torch.Tensor, torch.Tensor]]


@dataclass(slots=True, eq=False)
class Row:
    """Turn being sampled: its input and the tokens sampled so far.

    Attributes:
        states: keys and values of its first tokens, (layers, 2, heads, tokens, head size); None if nothing is computed.
    """

    input_ids: list[int]
    max_tokens: int
    stream: random.Random
    states: torch.Tensor | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    def add(self, token: int, logprob: float, stop_ids: Sequence[int]) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.ended = token in stop_ids or len(self.ids) >= self.max_tokens


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decoder of rows with one model.

    Attributes:
        mixes: True if rows may leave before the others have ended, and others join.
        waiting: function that counts the rows that would join.
    """

    model: PreTrainedModel
    stop_ids: Sequence[int]
    pad_id: int
    draw: Draw
    mixes: bool
    waiting: Callable[[], int] = lambda: 0

    @torch.no_grad()  # grad mode belongs to the thread, so it is set here and not by the caller
    def decode(self, continuing: Sequence[Row], joining: Sequence[Row]) -> None:
        """Samples until enough rows have ended, or more wait than run.

        Rows that are not `ended` then are `continuing` in the next call.

        All rows have `states` afterwards if the decoder mixes.
        """
        cache, mask = self._read(joining)
        rows = [*continuing, *joining]
        if self.mixes:  # the cache of new rows has gaps and no room
            cache, mask = self._batch([row.states for row in rows])
        enough = max(1, int(_LEAVE * len(rows))) if self.mixes else len(rows)
        while (ended := sum(row.ended for row in rows)) < enough and not (
            self.mixes and self.waiting() > len(rows) - ended
        ):
            mask = self._step(rows, cache, mask)
        if self.mixes:
            for row, states in zip(rows, unbatched(cache, mask), strict=True):
                row.states = states

    def _read(self, rows: Sequence[Row]) -> tuple[Any, torch.Tensor]:
        """Computes the new part of the rows' inputs, and samples their first tokens.

        If the decoder mixes, all rows have `states` afterwards.
        """
        if not rows:
            return None, torch.zeros(0, 0, dtype=torch.long)
        ids, mask, cache, owners = self._new(rows)
        self._forward(rows, ids, mask, cache, owners)
        if self.mixes:
            states = unbatched(cache, mask)
            for row, owner in zip(rows, owners, strict=True):
                row.states = states[owner]
        return cache, mask

    def _new(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor, Any, list[int]]:
        """Returns the ids of the inputs' new part, the mask, the cache, and each row's entry in them.

        The cache holds the known part. Entries have gaps between their known and their new part. If the decoder mixes, equal inputs, as in
        the dialogues of a group, share an entry.
        """
        places: dict[Any, int] = {}
        inputs = [tuple(row.input_ids) if self.mixes and row.states is None else row for row in rows]
        owners = [places.setdefault(each, len(places)) for each in inputs]
        once = [rows[owners.index(place)] for place in range(len(places))]
        known = [0 if row.states is None else row.states.shape[3] for row in once]
        cache = batched([row.states for row in once]) if any(known) else DynamicCache(config=self.model.config)
        past, new = max(known), max(len(row.input_ids) - length for row, length in zip(once, known, strict=True))
        ids = torch.full((len(once), new), self.pad_id)
        mask = torch.zeros((len(once), past + new), dtype=torch.long)
        for index, (row, length) in enumerate(zip(once, known, strict=True)):
            unread = row.input_ids[length:]
            ids[index, new - len(unread) :] = torch.tensor(unread)
            mask[index, past - length : past] = 1
            mask[index, past + new - len(unread) :] = 1
        return ids, mask, cache, owners

    def _step(self, rows: Sequence[Row], cache: Any, mask: torch.Tensor) -> torch.Tensor:
        """Samples one more token for each row that has not ended. Returns the mask with the new column."""
        ids = torch.tensor([[row.ids[-1]] for row in rows])
        mask = torch.cat((mask, torch.tensor([[0 if row.ended else 1] for row in rows])), dim=1)
        self._forward(rows, ids, mask, cache, range(len(rows)))
        return mask

    def _forward(
        self, rows: Sequence[Row], ids: torch.Tensor, mask: torch.Tensor, cache: Any, owners: Sequence[int]
    ) -> None:
        """Samples one token per row that has not ended, from the logits of its entry in `owners`."""
        logits = self._logits(ids, mask, cache)
        going = [index for index, row in enumerate(rows) if not row.ended]
        tokens, logprobs = self.draw(
            logits[[owners[index] for index in going], -1].float(), [rows[index].stream for index in going]
        )
        if not logprobs.isfinite().all():
            raise Diverged(
                "The model's probabilities of a next token are not finite numbers: its weights are unusable."
            )
        for index, token, logprob in zip(going, tokens.tolist(), logprobs.tolist(), strict=True):
            rows[index].add(token, logprob, self.stop_ids)

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: Any) -> torch.Tensor:
        """Returns the logits after the last token, (entries, 1, vocabulary); the cache takes in all of `ids`."""
        device = self.model.device
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            **{CACHE: cache},
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits
        return logits

    def _batch(self, states: Sequence[torch.Tensor | None]) -> tuple[Any, torch.Tensor]:
        """Returns rows without gaps as one cache, padded on the left, and its mask."""
        lengths = torch.tensor([0 if row is None else row.shape[3] for row in states])
        longest = int(lengths.max())
        return batched(states), (torch.arange(longest) >= longest - lengths[:, None]).long()
