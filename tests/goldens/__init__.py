"""Goldens: figures of the whole chain that a change of the code must leave as they are.

    python -m tests.goldens            writes all of them anew
    python -m tests.goldens samples    writes one

Each module beside this file has one function `figures`, which computes what its JSON file holds; test_goldens.py compares the two.
Write a golden anew only for a change that is meant to move its figures, and name that change in the commit.

Counts, ids and words are compared exactly; floats to a relative 1e-4, since processors and libraries round differently.
"""

import importlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = ("summary", "samples", "flags", "people", "first_steps", "plans")
TOLERANCE = 1e-4


def figures(name: str) -> Any:
    """Computes a golden's figures, as JSON would give them back."""
    computed = importlib.import_module(f"tests.goldens.{name}").figures()
    return json.loads(json.dumps(computed, default=str))


def golden(name: str) -> Any:
    """Reads a golden's file."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def write(name: str) -> Path:
    """Writes a golden's file: one line per entry of its first two levels, so that a diff shows what moved."""
    path = HERE / f"{name}.json"
    path.write_text(_spread(figures(name), 2) + "\n", encoding="utf-8")
    return path


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yields a line per place where the figures are not the golden's."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            if key not in was or key not in now:
                yield f"{where}.{key} is {'new' if key in now else 'gone'}"
            else:
                yield from differences(was[key], now[key], f"{where}.{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, pair in enumerate(zip(was, now, strict=True)):
            yield from differences(*pair, f"{where}[{place}]")
    elif isinstance(was, float) and isinstance(now, float) and math.isfinite(was):
        if not math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where}: {was} became {now}"
    elif was != now and not (was is now or (was != was and now != now)):
        yield f"{where}: {_short(was)} became {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 80 else f"{text[:80]}…"


def _spread(value: Any, levels: int, indent: str = "") -> str:
    if not levels or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)
    deeper = f"{indent} "
    if isinstance(value, dict):
        lines = [f"{deeper}{json.dumps(key)}: {_spread(each, levels - 1, deeper)}" for key, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _spread(each, levels - 1, deeper) for each in value) + f"\n{indent}]"
