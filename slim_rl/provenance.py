"""Provenance of numbers: `provenance.json` in the folder of every log and next to every page of an experiment.

It has one entry per command, code and machine that wrote there, oldest first, without host names.
"""

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock

from slim_rl import __version__, bundled
from slim_rl.files import write_atomically
from slim_rl.formats import count, without_passwords
from slim_rl.processes import output_of

FILE = "provenance.json"
PACKAGES = (
    *("numpy", "scipy", "pandas", "openai", "torch", "transformers", "trl", "peft", "vllm"),
    *("sglang", "slime", "megatron-core", "ray", "verl"),
)
_WIDEST = ("avx512f", "avx2", "avx", "asimd")  # instruction sets: the order of sums depends on them

_MARKUP, _ESCAPED = re.compile(r"([\\[<`])"), r"\\\1"
Entry = dict[str, Any]


@cache
def here() -> Entry:
    """Returns command, code, packages and machine of this process, JSON-able; outside git `commit` and `clean` are null."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return {
        "command": _command(sys.argv),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "slim_rl": __version__,
        "commit": commit,
        "clean": None if changed is None else not changed,
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "machine": _machine(),
    }


def record(folder: Path, again: bool = False) -> None:
    """Adds this process to the folder's provenance, unless it has an equal entry. Ignores errors of the disk.

    Args:
        again: whether to remove earlier entries, since all of the folder is written again.
    """
    with suppress(OSError, NotImplementedError):  # some network file systems have no locks
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{FILE}.lock"):
            entries = [] if again else read(folder)
            if not any(_what(entry) == _what(here()) for entry in entries):
                write_atomically(folder / FILE, json.dumps([*entries, here()], indent=1))


def read(folder: Path) -> list[Entry]:
    """Returns the folder's entries; empty without a valid file."""
    try:
        entries = orjson.loads((folder / FILE).read_bytes())  # deep nesting is a ValueError too
    except (OSError, ValueError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def code_of(entry: Entry) -> str:
    """Returns text such as 'commit 2e54b8f, with changes that are not committed'."""
    if not entry.get("commit"):
        return f"slim_rl {entry.get('slim_rl', 'of an unknown version')}"
    return f"commit {entry['commit']}" + (
        ", with changes that are not committed" if entry.get("clean") is False else ""
    )


def machine_of(entry: Entry) -> str:
    """Returns text such as '2 cores of an Intel Xeon, avx512f, no GPU'."""
    machine = entry.get("machine") or {}
    if not isinstance(machine, dict):
        return str(machine)
    gpus = machine.get("gpus") or ["no GPU"]
    parts = [f"{count(machine.get('cores', 0), 'core')} of {machine.get('processor', 'an unknown processor')}"]
    return ", ".join([*parts, *filter(None, [machine.get("instructions")]), *gpus])


def sentence(entry: Entry) -> str:
    """Returns an entry as a line of Markdown: command, date, code, main packages and machine."""
    packages = entry.get("packages") or {}
    main = [f"{name} {packages[name]}" for name in ("torch", "sglang", "vllm") if name in packages]
    code = ", ".join([code_of(entry), *main])
    command = without_passwords(str(entry.get("command", ""))).replace("`", "'")
    text = f"on {entry.get('date', 'an unknown day')}; {code}; {machine_of(entry)}."
    return f"`{command}` {_MARKUP.sub(_ESCAPED, text)}"  # entries of downloaded logs may hold any text


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the entries without repetitions."""
    unique = {json.dumps(_what(entry), sort_keys=True): entry for entry in reversed(entries)}
    return list(reversed(unique.values()))


def _what(entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if key != "date"}


def _git(*words: str) -> str | None:
    return output_of("git", "-C", str(bundled.ROOT), *words) if (bundled.ROOT / ".git").exists() else None


def _command(words: Sequence[str]) -> str:
    """Returns the command line without passwords; "a worker of Ray" for one, since its arguments hold a password."""
    program = Path(words[0]) if words else Path()
    # `python -m slim_rl`, as further ranks are started
    name = "slim-rl" if program.parent.name == "slim_rl" else program.name
    if name == "default_worker.py":
        return "a worker of Ray"
    return without_passwords(shlex.join([name or "python", *words[1:]]))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> Entry:
    facts: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": facts.get("model name") or platform.processor() or platform.machine(),
        "instructions": next((name for name in _WIDEST if name in flags), None),
        "gpus": (output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines(),
    }
