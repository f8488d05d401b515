"""slime's flags for a machine without a GPU, in addition to those of scripts/run_matching.sh. A flag that the user gives wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.backends.slime.flags import Flags
from slim_rl.errors import ConfigError

GPUS = 2  # as Ray counts them: one for training, one for playing (COLOCATE=0)
ENGINE = "--rollout-external-engine-addrs"
_CPU = __package__
_FLOAT32 = "--custom-megatron-init-path"
_FUSED = ("gradient-accumulation", "masked-softmax", "rope", "bias-dropout", "bias-swiglu")  # kernels for GPUs only

MEGATRON: Mapping[str, Any] = {
    "--spec": [f"{_CPU}.layers", "layer_spec"],
    "--transformer-impl": "local",
    _FLOAT32: f"{_CPU}.precision.init",
    "--distributed-backend": "gloo",
    "--use-cpu-initialization": True,
    "--no-persist-layer-norm": True,
    **{f"--no-{name}-fusion": True for name in _FUSED},
}


def precision(flags: Flags) -> str:
    """Returns the dtype that Megatron and SGLang share. Raises ConfigError unless it is float32 or bfloat16."""
    (asked,) = flags.get("--sglang-dtype") or ["float32"]
    if asked not in ("float32", "bfloat16"):
        raise ConfigError(
            f"--sglang-dtype is {asked}, but Megatron on a CPU computes in float32 or bfloat16; give one of these."
        )
    return asked


def megatron(flags: Flags) -> Mapping[str, Any]:
    """Returns Megatron's flags for the precision that the user's flags ask for."""
    return {**MEGATRON, **({} if precision(flags) == "float32" else {_FLOAT32: None})}


def engine(url: str, context: int | None, folder: Path) -> dict[str, Any]:
    """Returns the flags for a running SGLang server behind slime's router.

    New weights reach it through the run's folder, since NCCL sends weights to GPUs only.
    """
    return {
        ENGINE: url.removeprefix("http://"),
        "--sglang-context-length": context,
        "--update-weight-transport": "disk",
        "--update-weight-disk-dir": folder / "weights",
        "--save-hf": f"{folder}/hf/{{rollout_id}}",
    }
