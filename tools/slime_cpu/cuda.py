"""torch.cuda as Megatron calls it, on a CPU: every device is the CPU, and what orders or measures work on a GPU does nothing.

Megatron asks for tensors on "cuda" by name, moves them there by `.cuda()`, seeds and saves the GPU's random numbers, and waits on streams
and events. On a CPU tensors stay where they are, its one generator stands for the GPU's, and all work is in order already.
"""

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # looks up torch.cuda's functions by identity, once: before they are replaced
import torch.utils._device

_CPU = torch.device("cpu")
_MEMORY = 16 << 30  # what Megatron is told of a GPU's, in bytes; it plans nothing by it
_MAKERS = """tensor as_tensor empty zeros ones full arange rand randn randint linspace eye
    empty_like zeros_like ones_like full_like empty_strided"""
_NOTHING = ("synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "ipc_collect", "init", "_lazy_init")
_ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


class Event:
    """A point in a stream: on a CPU it has always passed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, *args: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "Event") -> float:
        return 0.0


class Stream:
    """A queue of work: on a CPU there is one, and it is empty."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_stream(self, *args: Any) -> None: ...

    def wait_event(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *args: Any) -> None: ...


@functools.cache  # once a process
def install() -> None:
    """Puts it in place in this process, for good."""
    torch.utils._device._device_constructors()  # as torch._dynamo does: `with torch.device("meta")`, by which transformers loads
    cuda, only = torch.cuda, Stream()
    properties = types.SimpleNamespace(
        name="CPU", major=8, minor=0, total_memory=_MEMORY, multi_processor_count=1, uuid="cpu"
    )
    replaced: dict[str, Any] = {
        **dict.fromkeys(_NOTHING, _always(None)),
        **dict.fromkeys(_ZERO, _always(0)),
        "Stream": Stream,
        "Event": Event,
        "memory_stats": lambda *args, **kwargs: {},
        "current_device": _always(_CPU),
        "device_count": _always(1),
        "current_stream": _always(only),
        "default_stream": _always(only),
        "stream": lambda stream=None: contextlib.nullcontext(),
        "get_device_properties": _always(properties),
        "get_device_capability": _always((8, 0)),
        "get_device_name": _always("CPU"),
        "mem_get_info": _always((_MEMORY, _MEMORY)),
        "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": torch.default_generator.manual_seed,
    }
    random = {
        "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
        "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
    }
    vars(cuda).update(replaced | random)
    vars(cuda.random).update(random)
    vars(torch).update({name: _on_cpu(getattr(torch, name)) for name in _MAKERS.split()})
    _patch_tensors()


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _is_cuda(device: Any) -> bool:
    return device is not None and ("cuda" in str(device) or isinstance(device, int))


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes tensors, on the CPU whatever it is asked for."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return make(*args, **kwargs)

    return made


def _patch_tensors() -> None:
    tensor: Any = torch.Tensor
    move, kind = tensor.to, tensor.type

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        if args and isinstance(args[0], (str, int, torch.device)) and _is_cuda(args[0]):
            args = (_CPU, *args[1:])
        return move(self, *args, **kwargs)

    def type_of(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Megatron's optimizer sorts its parameters by this name."""
        return kind(self, *args, **kwargs) if args or kwargs else kind(self).replace("torch.", "torch.cuda.")

    tensor.to, tensor.type = to, type_of
    for whole in (tensor, torch.nn.Module):
        whole.cuda = lambda self, *args, **kwargs: self
    tensor.pin_memory = lambda self, *args, **kwargs: self
