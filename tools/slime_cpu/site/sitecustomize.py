"""Python imports a module of this name at its start: here, in every process of a run without a GPU, Ray's and SGLang's included.

It puts each stand-in in place when what it stands in for is first imported, and imports nothing itself: most processes of a run
never need one.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_CPU = "slime_cpu"
_BEFORE = {"megatron": "cuda"}  # module: the stand-in that must be there before it
_AFTER = {  # module: the stand-in that changes it
    "slime.utils.accelerator": "accelerator",
    "megatron.core.transformer.module": "precision",
    "megatron.core.optimizer.distrib_optimizer": "optimizer",
}
_ABSENT = (
    "IPython",
    "compressed_tensors",
    "gguf",
    "sgl_kernel",
    "soundfile",
    "torch_memory_saver",
    "torchvision",
    "triton",
)


class _Then(importlib.abc.Loader):
    """A module's own loader, and `install(module)` of a stand-in after it."""

    def __init__(self, loader: importlib.abc.Loader, stand_in: str) -> None:
        self.loader, self.stand_in = loader, stand_in

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        importlib.import_module(f"{_CPU}.{self.stand_in}").install(module)


class _StandIns(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in _BEFORE:
            importlib.import_module(f"{_CPU}.{_BEFORE[name]}").install()
        if name not in _AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, _AFTER[name])
        return spec


class _Absent(importlib.abc.MetaPathFinder):
    """The last finder: what is installed is found before."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _ABSENT:
            return None
        found: importlib.machinery.ModuleSpec = importlib.import_module(f"{_CPU}.absent").spec(name)
        return found


sys.meta_path.insert(0, _StandIns())
sys.meta_path.append(_Absent())
