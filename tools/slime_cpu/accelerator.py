"""A CPU for slime's registry of accelerators, which is there for such additions: slime has CUDA and MUSA."""

import os
from types import ModuleType
from typing import Any

import psutil
import torch


def install(slime: ModuleType) -> None:
    """Registers it with `slime.utils.accelerator`, and has slime choose it."""

    class CPU(slime.Accelerator):  # type: ignore[name-defined, misc]
        """All of slime's questions to a device, answered for this machine."""

        name = device_type = "cpu"
        communication_backend_name = "gloo"

        def is_available(self) -> bool:
            return True

        def device(self, index: Any = None) -> torch.device:
            return torch.device("cpu")

        def device_name(self, index: Any = None) -> str:
            return "cpu"

        def set_device(self, index: Any) -> None: ...

        def current_device(self) -> str:
            return "cpu"

        def device_count(self) -> int:
            return 1

        def synchronize(self, device: Any = None) -> None: ...

        def current_stream(self, device: Any = None) -> None:
            return None

        def empty_cache(self) -> None: ...

        def mem_get_info(self, device: Any = None) -> tuple[int, int]:
            # slime collects garbage at each reduction while less than 3 GB are free, which took a tenth of a step's training
            total = psutil.virtual_memory().total
            return total, total

        def memory_allocated(self, device: Any = None) -> int:
            return int(psutil.Process().memory_info().rss)

        def memory_reserved(self, device: Any = None) -> int:
            return self.memory_allocated(device)

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        def autocast(self, *args: Any, **kwargs: Any) -> Any:
            return torch.autocast("cpu", *args, **kwargs)

    slime.register_accelerator("cpu", CPU, lambda: True, priority=-1, communication_backends=("gloo",))
    os.environ.setdefault("SLIME_ACCELERATOR", "cpu")
