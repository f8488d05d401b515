"""slime's flags for a machine without a GPU, beside those of every launch (`arguments`). A flag that the user gives takes their place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.backends.slime.layout import Flags
from slim_rl.errors import ConfigError

GPUS = 2  # as Ray counts them: one for training, one for playing, as slime lays a run out that shares none
ENGINE = "--rollout-external-engine-addrs"
_CPU = __package__
_FLOAT32 = "--custom-megatron-init-path"
_FUSED = (
    "gradient-accumulation",
    "masked-softmax",
    "rope",
    "bias-dropout",
    "bias-swiglu",
)  # kernels that there are for GPUs only

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
    """That of Megatron and SGLang both. Raises ConfigError for one that is not float32 or bfloat16."""
    (asked,) = flags.get("--sglang-dtype") or ["float32"]
    if asked not in ("float32", "bfloat16"):
        raise ConfigError(f"--sglang-dtype is {asked}: without a GPU it is float32 or bfloat16, for Megatron too.")
    return asked


def megatron(flags: Flags) -> Mapping[str, Any]:
    """Megatron's flags, beside those that the user gives."""
    return {**MEGATRON, **({} if precision(flags) == "float32" else {_FLOAT32: None})}


def engine(url: str, context: int | None, folder: Path) -> dict[str, Any]:
    """For an SGLang server of our own, before which slime puts its router: new weights reach it by the disk, by way of the run's
    folder, where NCCL would send them to a GPU.
    """
    return {
        ENGINE: url.removeprefix("http://"),
        "--sglang-context-length": context,
        "--update-weight-transport": "disk",
        "--update-weight-disk-dir": folder / "weights",
        "--save-hf": f"{folder}/hf/{{rollout_id}}",
    }
