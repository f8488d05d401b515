"""The environment of every process of a run without a GPU."""

from __future__ import annotations

from pathlib import Path

from slim_rl.backends.slime.cluster import PACKAGES
from slim_rl.processes import with_packages

_TOOLS = Path(__file__).parents[1]
_SITE = _TOOLS / "slime_cpu" / "site"
_VARIABLES = {
    "TORCHDYNAMO_DISABLE": "1",  # compiling for a CPU takes longer than it saves
    "OMP_NUM_THREADS": "1",  # processes share the cores; SGLang with more threads is a hundred times slower on two
    "SGLANG_USE_CPU_ENGINE": "1",
    "SLIME_HOST_IP": "127.0.0.1",  # where slime's router listens: nobody else's business
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "",  # they all import the same thousands of modules: one compiles them, for all runs
}


def environment(slime: Path, megatron: Path) -> dict[str, str]:
    """This process's, with the stand-ins in place and slime, Megatron and slim_rl to import."""
    return with_packages([_SITE, _TOOLS, slime, megatron, PACKAGES]) | _VARIABLES
