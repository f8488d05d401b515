"""Trainers that stop at a loss, a gradient or a weight that is not a finite number."""

from typing import Any

import torch
from torch.nn.utils import get_total_norm
from transformers import Trainer

from slim_rl.errors import Diverged

_PROBE = 8  # tokens, any that every vocabulary has


class FiniteSteps(Trainer):
    """Trainer that raises Diverged before the update of such a step."""

    _finite: bool | torch.Tensor = True  # whether all of the step's losses are

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        self._finite = loss.isfinite() & self._finite
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Checks the gradient before the update: one that is not finite would break every weight."""
        norm = super()._get_grad_norm(model, grad_norm)
        finite = torch.as_tensor(norm, device=self.accelerator.device).isfinite() & self._finite
        self._finite = True
        if not self.accelerator.gather(finite.reshape(1)).all():  # type: ignore[no-untyped-call]
            raise Diverged(f"The loss or the gradient of step {self.state.global_step} is not a finite number.")
        return norm

    @torch.no_grad()
    def check_finite(self) -> None:
        """Raises Diverged if the weights' norm or the model's logits are not finite."""
        model = self.accelerator.unwrap_model(self.model)
        was_training = model.training
        output = model.eval()(input_ids=torch.arange(_PROBE, device=model.device)[None], use_cache=False)
        model.train(was_training)
        if not (get_total_norm(model.parameters()).isfinite() and output.logits.isfinite().all()):
            raise Diverged(f"What the model computes after step {self.state.global_step} is not a finite number.")
