"""Batches of demonstrations, and the trainer of adapters that reads them."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from slim_rl.backends.trl.finite import FiniteSteps


class ScoringTrainer(FiniteSteps):
    """Trainer of adapters: dialogues of one game read its prompt once, and the output layer sees only what is learned."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        logprobs, _entropies = model(**inputs)
        return -logprobs.sum() / inputs["scored"].sum()  # type: ignore[no-any-return]


def scored_batch(rows: Sequence[Mapping[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Returns a batch as `scoring` reads it, split at the first token that is learned; padding is masked."""
    starts = [_first_learned(row) for row in rows]
    start = max(starts)
    width = start + max(len(row["labels"]) - begin for row, begin in zip(rows, starts, strict=True))
    ids, mask = torch.zeros(2, len(rows), width, dtype=torch.long)
    scored = torch.zeros(len(rows), width - start, dtype=torch.bool)
    for index, (row, begin) in enumerate(zip(rows, starts, strict=True)):
        end = start + len(row["labels"]) - begin
        ids[index, start - begin : end] = torch.tensor(row["input_ids"])
        mask[index, start - begin : end] = 1
        scored[index, : end - start] = torch.tensor(row["labels"][begin:]) != -100
    return {"input_ids": ids, "attention_mask": mask, "scored": scored}


def in_random_order(rows: Sequence[Mapping[str, list[int]]], seed: int) -> list[Any]:
    """Returns the rows in random order, neighbours with one prompt together."""
    groups = [list(group) for _, group in itertools.groupby(rows, lambda row: row["input_ids"][: _first_learned(row)])]
    random.Random(seed).shuffle(groups)
    return [row for group in groups for row in group]


def _first_learned(row: Mapping[str, list[int]]) -> int:
    """Returns the place of the first token that is learned."""
    return next(place for place, label in enumerate(row["labels"]) if label != -100)
