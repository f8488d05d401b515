"""The environment of every process of a run without a GPU."""

import os
from pathlib import Path

from slim_rl.backends.slime import job

_TOOLS = Path(__file__).parents[1]
_HERE = _TOOLS / "slime_cpu"
_VARIABLES = {
    "TORCHDYNAMO_DISABLE": "1",  # compiling for a CPU takes longer than it saves
    "OMP_NUM_THREADS": "1",  # processes share the cores; Megatron and SGLang have `train.threads`
    "SGLANG_USE_CPU_ENGINE": "1",
    "IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD": "80",  # tokens: a system prompt has fewer, a game's whole prompt more
    "IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD": "80",
    "THP_MEM_ALLOC_ENABLE": "1",  # pages of 2 MB for torch's big blocks, which come and go with every pack
    "SLIME_HOST_IP": "127.0.0.1",  # slime's router listens on this machine only
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "",  # all processes import the same thousands of modules: one compiles them for all runs
}


def environment(slime: Path, megatron: Path) -> dict[str, str]:
    """Returns the environment in which the substitutes are installed, and slime, Megatron and slim_rl importable."""
    return job.environment(_HERE / "site", _TOOLS, slime, megatron) | _VARIABLES


def of_the_script(slime: Path, megatron: Path) -> dict[str, str]:
    """Returns the environment of scripts/run_matching.sh: the same, with the commands `ray` and `nvidia-smi` replaced."""
    variables = environment(slime, megatron) | {"SLIME_DIR": str(slime), "MEGATRON_DIR": str(megatron), "COLOCATE": "0"}
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    variables.setdefault("MODEL_SCRIPT", str(_HERE / "models" / "of_its_config.sh"))
    return variables | {"PATH": f"{_HERE / 'bin'}{os.pathsep}{variables['PATH']}"}
