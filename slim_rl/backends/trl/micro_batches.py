"""Micro-batches without what changes nothing: dialogues of like length together, no padding, and none without an advantage."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object

_SAME_REWARD = 1e-6
IDLE = "idle"  # the key of a micro-batch that would change nothing


def by_length(batches: Sequence[dict[str, Any]], together: bool = False) -> list[dict[str, Any]]:
    """Returns the same rows in as many batches of the same size, by the dialogue's length.

    Rows without an advantage come first. What is not a row's stays with its batch.

    Args:
        batches: a step's micro-batches.
        together: whether rows with the same prompt stay together.
    """
    size = len(batches[0]["completion_mask"])
    lengths = torch.cat([batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1) for batch in batches])
    teaches = torch.cat([batch["advantages"].reshape(size, -1).any(1) for batch in batches])
    order = torch.argsort(lengths, stable=True)
    if together:
        prompts = torch.unique(torch.cat([batch["prompt_ids"] for batch in batches]), dim=0, return_inverse=True)[1]
        longest = torch.zeros_like(lengths).scatter_reduce(0, prompts, lengths, "amax")[prompts]
        for key in (prompts, longest):
            order = order[torch.argsort(key[order], stable=True)]
    chosen = order[torch.argsort(teaches[order].int(), stable=True)].split(size)
    sorted_batches = [dict(batch) for batch in batches]
    for name, value in batches[0].items():
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            rows = torch.cat([batch[name] for batch in batches])
            for batch, indices in zip(sorted_batches, chosen, strict=True):
                batch[name] = rows[indices]
    return sorted_batches


def without_rounding(advantages: torch.Tensor, group_size: int, scaled: bool) -> torch.Tensor:
    """Returns the advantages, 0 in groups whose rewards differ by at most 1e-6: their difference is rounding.

    Args:
        advantages: shape (rows,), with the rows of a group next to each other.
        group_size: rows per group; a process that has a part of a group sees that part alone.
        scaled: True if they are divided by the group's standard deviation plus 1e-4, as TRL does.
    """
    groups = advantages.reshape(-1, math.gcd(len(advantages), group_size))
    level = groups.abs().amax(1, keepdim=True) <= (_SAME_REWARD / 1e-4 if scaled else _SAME_REWARD)
    return groups.masked_fill(level, 0.0).reshape(-1)


def mark_idle(batches: Sequence[dict[str, Any]]) -> None:
    """Marks each micro-batch in which no dialogue of any process has an advantage.

    TRL's loss gathers numbers from all processes, so all of them compute a micro-batch or none does.
    """
    idle = [not batch["advantages"].any() for batch in batches]
    for batch, everywhere in zip(batches, zip(*gather_object([idle]), strict=True), strict=True):
        batch[IDLE] = all(everywhere)


def trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """Takes off columns that are padding in every row: prompts are padded on the left, completions on the right."""
    prompt = int(inputs["prompt_mask"].sum(1).max())
    completion = max(1, int(inputs["completion_mask"].sum(1).max()))  # TRL can mask a cut dialogue whole
    width = inputs["completion_mask"].shape[1]
    trimmed = dict(inputs)
    for name, value in inputs.items():
        if name in ("prompt_ids", "prompt_mask"):
            trimmed[name] = value[:, -prompt:]
        elif isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == width:
            trimmed[name] = value[:, :completion]
    return trimmed
