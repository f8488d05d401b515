"""What the launch takes for Megatron's rules, asked of Megatron itself where its sources are at hand."""

from __future__ import annotations

from typing import Any

import pytest

from slim_rl.config import load_config
from slim_rl.config.trainers import values
from tests.fakes.upstream import import_megatron


@pytest.mark.parametrize("change", [{"steps": 400}, {"rate": 2e-6}])
def test_a_longer_run_or_another_rate_needs_the_override(change: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    scheduler = import_megatron("optimizer_param_scheduler")

    def make(steps: int = 200, rate: float = 1e-6, override: bool = False) -> Any:
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
        return scheduler.OptimizerParamScheduler(
            optimizer, init_lr=0.0, max_lr=rate, min_lr=0.0, lr_warmup_steps=0, lr_decay_steps=steps * 256,
            lr_decay_style="constant", start_wd=0.1, end_wd=0.1, wd_incr_steps=steps * 256, wd_incr_style="constant",
            use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=override,
        )  # fmt: skip

    begun = make()
    begun.step(50 * 256)
    with pytest.raises(AssertionError, match="do not match"):
        make(**change).load_state_dict(begun.state_dict())
    resumed = make(**change, override=True)
    resumed.load_state_dict(begun.state_dict())
    assert resumed.num_steps == 50 * 256


@pytest.mark.parametrize("steps", [1, 2, 10, 19])
def test_megatron_accepts_warm_up_and_decay_of_short_runs(steps: int) -> None:
    torch = pytest.importorskip("torch")
    scheduler = import_megatron("optimizer_param_scheduler")
    flags = values(load_config("matching_local", [f"train.steps={steps}"]), "slime")

    def make(warmup: int, decay: int) -> Any:
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        return scheduler.OptimizerParamScheduler(
            optimizer, init_lr=0.0, max_lr=1.0, min_lr=0.0, lr_warmup_steps=warmup, lr_decay_steps=steps,
            lr_decay_style="WSD", start_wd=0.1, end_wd=0.1, wd_incr_steps=steps, wd_incr_style="constant",
            wsd_decay_steps=decay, lr_wsd_decay_style="linear",
        )  # fmt: skip

    made = make(flags["--lr-warmup-iters"], flags["--lr-wsd-decay-iters"])
    rates = []
    for _ in range(steps):
        rates.append(made.optimizer.param_groups[0]["lr"])
        made.step(1)
    assert max(rates) == 1.0
    if steps <= 10:
        with pytest.raises(AssertionError):
            make(10, 10)
