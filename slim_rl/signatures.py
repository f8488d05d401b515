"""Checks that a custom class has every method of its slim_rl base class, with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from slim_rl.errors import ConfigError

_ON_CLASS = (classmethod, staticmethod)


def check_methods(made: type, key: str) -> None:
    """Checks that a subclass can be called as its base is. Raises ConfigError that names all faults after `key`.

    Args:
        made: class to check; each of its public methods is compared with the one that the first base declares.
    """
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    wrong = [*([f"it has no {', '.join(missing)}"] if missing else []), *_wrong(made)]
    if wrong:
        raise ConfigError(f"{key}: {'; '.join(wrong)}. Correct the class (docs/reference/environment-api.md).")


def _wrong(made: type) -> Iterator[str]:
    for name in dir(made):
        defined = inspect.getattr_static(made, name)
        base = next((cls.__dict__[name] for cls in reversed(made.__mro__) if name in cls.__dict__), defined)
        if name.startswith("_") or base is defined or not (isinstance(base, _ON_CLASS) or inspect.isfunction(base)):
            continue
        declared = inspect.signature(base.__func__ if isinstance(base, _ON_CLASS) else base).parameters.values()
        names = [each.name for each in list(declared)[not isinstance(base, staticmethod) :]]
        needed = sum(each.default is each.empty for each in declared) - (not isinstance(base, staticmethod))
        member, bound = getattr(made, name), not isinstance(base, _ON_CLASS) and inspect.isfunction(defined)
        if not callable(member) or inspect.iscoroutinefunction(member):
            yield f"{name} must be a method, and not async"
        elif not all(takes(member, count + bound) for count in {needed, len(names)}):
            kind = "the class method " if isinstance(base, classmethod) else ""
            yield f"{name} must be {kind}{name}({', '.join(names)})"


def takes(function: Any, count: int) -> bool:
    """Returns True if a function can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True
