"""slime's own parsers and loader, on the command lines that the pages show.

    PYTHONPATH=SLIME python -m tests.backends.slime_parsers WORDS...

For each WORDS, a command line as JSON, it prints the flags that slime's parser does not know and whether the dotted paths load. What slime
imports and nothing here needs is stand-ins without content.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_STAND_INS = ("sglang", "sglang_router", "wandb", "megatron", "ray", "transformers")


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module of theirs; whatever is asked of it is there, and does nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _STAND_INS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        module: Any = MagicMock(name=spec.name)
        module.__path__, module.__name__ = [], spec.name
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        pass


def read(words: list[str]) -> list[Any]:
    """The words' unknown flags, and whether each of our dotted paths is found by slime's loader."""
    from slime.utils.arguments import get_slime_extra_args_provider
    from slime.utils.misc import load_function

    parser = argparse.ArgumentParser(allow_abbrev=False)
    get_slime_extra_args_provider()(parser)
    args, unknown = parser.parse_known_args(words)
    paths = [path for name, path in vars(args).items() if name.endswith("_path") and str(path).startswith("slim_rl.")]
    return [unknown, [callable(load_function(path)) for path in paths]]


if __name__ == "__main__":
    sys.meta_path.insert(0, Empty())
    print(json.dumps([read(json.loads(words)) for words in sys.argv[1:]]))
