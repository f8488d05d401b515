"""Muon for weight matrices, AdamW for embeddings and norms (Jordan et al. 2024, "Muon: an optimizer for hidden layers").

With AdamW alone, a model of this size needs several times as many demonstrations to copy numbers from a conversation.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class MuonWithAdamW(torch.optim.Optimizer):
    """Optimizer that splits the parameters between Muon and AdamW. A scheduler does not reach these two: the rate is constant."""

    def __init__(self, model: nn.Module, learning_rate: float, weight_decay: float = 0.01) -> None:
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        chosen = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in chosen]
        self._parts: tuple[torch.optim.Optimizer, ...] = (
            # Updates are scaled to AdamW's size, so that one learning rate suits both.
            torch.optim.Muon(matrices, learning_rate, weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
        )
        super().__init__([*matrices, *others], {"lr": learning_rate})

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Updates all parameters; see `torch.optim.Optimizer.step`."""
        for part in self._parts:
            part.step()
        return None
