"""Packages that SGLang and slime import and never call for a text model in float32 on a CPU: kernels (triton, sgl_kernel), the GPU
memory that slime lends and takes back (torch_memory_saver), notebooks, pictures, sound and quantised
weights.

Any name can be taken from them, as a class, a decorator or a module. Calling one is an error that names it; triton's alone are also
called while modules are imported, so those calls return another name.
"""

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_CALLED_AT_IMPORT = ("triton",)
_ANSWERS = {"IPython.get_ipython": None}  # this is no notebook
_NO_DRIVER = "0 active drivers ([]). There should only be one."  # triton's own words without a GPU


class _Name(type):
    """A name of an absent package: a class, of which any further name can be taken."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if cls.__name__ == "triton.runtime.driver" and name == "active":
            raise RuntimeError(_NO_DRIVER)
        return _name(f"{cls.__name__}.{name}")

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not isinstance(args[0], _Name) and not kwargs:
            return args[0]  # a decorator
        if cls.__name__ in _ANSWERS:
            return _ANSWERS[cls.__name__]
        if cls.__name__.partition(".")[0] in _CALLED_AT_IMPORT:
            return _name(f"{cls.__name__}()")
        raise RuntimeError(f"{cls.__name__} was called, which is not there without a GPU (slime_cpu.absent).")

    def __getitem__(cls, key: Any) -> Any:
        return cls


def _name(dotted: str) -> Any:
    return _Name(dotted, (), {})


class _Module(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__dict__.update(__path__=[], __version__="99.0.0", __getattr__=lambda name: _taken(module, name))
        return module

    def exec_module(self, module: ModuleType) -> None: ...


def _taken(module: ModuleType, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    member = _name(f"{module.__name__}.{name}")
    setattr(module, name, member)
    return member


def spec(name: str) -> ModuleSpec:
    """The spec of an absent package, or of a module in one."""
    return ModuleSpec(name, _Module(), is_package=True)
