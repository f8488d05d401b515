"""slime's flags for a machine without a GPU, beside those of every launch (`arguments`). A flag that the user gives takes their place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.policies.servers import Server

_CPU = __package__
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
    "--custom-megatron-init-path": f"{_CPU}.precision.init",
    "--distributed-backend": "gloo",
    "--use-cpu-initialization": True,
    "--no-persist-layer-norm": True,
    **{f"--no-{name}-fusion": True for name in _FUSED},
}


def engine(server: Server, folder: Path) -> dict[str, Any]:
    """For an SGLang server that runs already, before which slime puts its router: new weights reach it by the disk, by way of the run's
    folder, where NCCL would send them to a GPU.
    """
    return {
        "--rollout-external-engine-addrs": server.url.removeprefix("http://"),
        "--sglang-context-length": server.context,
        "--update-weight-transport": "disk",
        "--update-weight-disk-dir": folder / "weights",
        "--save-hf": f"{folder}/hf/{{rollout_id}}",
    }
