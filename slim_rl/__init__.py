"""slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?

Importing this package imports nothing else. Each name in `__init__.pyi` is imported from its module at first use, and only `train`
needs torch, when it is called.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.3.0"
_NAMES = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _NAMES, re.MULTILINE)}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # not looked up again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
