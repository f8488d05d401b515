"""slime's flags for a machine without a GPU, in addition to those of scripts/run_matching.sh. A flag that the user gives wins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.backends.slime.flags import TOKENS_PER_GPU, Flags
from slim_rl.config import Config
from slim_rl.errors import ConfigError

GPUS = 2  # as Ray counts them: one for training, one for playing (COLOCATE=0)
ENGINE = "--rollout-external-engine-addrs"
_CPU = __package__
_LOGITS, _COPIES = 0.05, 4  # share of the memory for a pack's logits, and how often they are there in float32
_SHORTEST = 512  # tokens of a pack
_NEVER = 10**6
CPU = Path("/proc/cpuinfo")
_FUSED = ("gradient-accumulation", "masked-softmax", "rope", "bias-dropout", "bias-swiglu")  # kernels for GPUs only

MEGATRON: Mapping[str, Any] = {
    "--spec": [f"{_CPU}.layers", "layer_spec"],
    "--transformer-impl": "local",
    "--custom-megatron-init-path": f"{_CPU}.precision.init",
    "--distributed-backend": "gloo",
    "--use-cpu-initialization": True,
    "--no-persist-layer-norm": True,
    **{f"--no-{name}-fusion": True for name in _FUSED},
}


def precision(config: Config, flags: Flags) -> str:
    """Returns the dtype that Megatron and SGLang share: --sglang-dtype, or policy.dtype where the processor computes in it.

    Raises ConfigError unless it is float32 or bfloat16.
    """
    computes = {"avx512_bf16", "amx_bf16"} & set(CPU.read_text(encoding="utf-8").split())
    (asked,) = flags.get("--sglang-dtype") or [config.policy.dtype if computes else "float32"]
    if asked not in ("float32", "bfloat16"):
        raise ConfigError(
            f"--sglang-dtype is {asked}, but Megatron on a CPU computes in float32 or bfloat16; give one of these."
        )
    return asked


def trainer(config: Config, vocabulary: int, memory: int) -> dict[str, Any]:
    """Returns Megatron's flags for a machine's memory and disk: packs whose logits fit, and two checkpoints at most.

    Args:
        vocabulary: tokens of the model.
        memory: bytes of the machine.
    """
    fit = int(_LOGITS * memory) // (_COPIES * 4 * vocabulary)
    limit = {"--max-tokens-per-gpu": max(fit, _SHORTEST)} if fit < TOKENS_PER_GPU else {}
    # Megatron removes the checkpoint before the one that it has written, unless its number is a multiple of this one
    return {**MEGATRON, **limit, "--save-retain-interval": _NEVER * config.train.save_every}


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
