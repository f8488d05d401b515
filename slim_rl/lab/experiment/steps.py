"""Steps of an experiment in its YAML: each is a command of `slim-rl` with its options by name.

- evaluate: {words: configs/matching_local.yaml, checkpoint: "runs/shy-s{1-4}/model", mode: "forced:{2,4}", set: {policy.top_p: 1}}

{1-4} or {2,4}   one value per number
set              a mapping of keys to values; `set` is the option --set
words            positional arguments; one with a * expands to the matching files
after            trainer's flags, after --
makes            a path; the step is skipped if it exists
by               command line of another program, instead of `slim-rl` and the command
arms             option of `lab arms`; the experiment's file by default
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.errors import ConfigError
from slim_rl.processes import python_module

NUMBERS = re.compile(r"\{(\d[\d,-]*)\}")
_SPECIAL = ("words", "set", "after", "makes", "by")


@dataclass(frozen=True, slots=True)
class Step:
    """Command with its arguments.

    Attributes:
        name: name of the command, such as "evaluate" or "lab arms".
        words: arguments and options.
        program: another program with its arguments; empty: `slim-rl` and the command.
        makes: path whose existence makes the step superfluous; None: the step always runs.
    """

    name: str
    words: tuple[str, ...]
    program: tuple[str, ...] = ()
    makes: Path | None = None

    @property
    def command(self) -> list[str]:
        return [*(self.program or python_module("slim_rl", *self.name.split())), *self.words]

    def __str__(self) -> str:
        return shlex.join([*(self.program or ("slim-rl", *self.name.split())), *self.words])


def step_of(entry: Mapping[str, Any], number: int, path: Path, arms: bool = False) -> Step:
    """Returns the step of an entry in the YAML. Raises ConfigError if the entry is malformed."""
    if len(entry) != 1 or not isinstance(options := next(iter(entry.values())), Mapping):
        raise ConfigError(
            f"{path}: step {number} is not one command with its options. Write, for example, evaluate: {{mode: free}}."
        )
    (name,) = entry
    words = [word for text in _texts(options.get("words", [])) for word in _matching(text)]
    if name == "lab arms" and arms:
        options = {"arms": path, **options}
    for option, value in options.items():
        if option not in _SPECIAL and value is not False:
            flag = f"--{option.replace('_', '-')}"
            words += [flag] if value is True else [word for text in _texts(value) for word in (flag, text)]
    words += [word for key, value in options.get("set", {}).items() for word in ("--set", f"{key}={_value(value)}")]
    if after := _texts(options.get("after", [])):
        words += ["--", *after]
    makes = options.get("makes")
    return Step(name, tuple(words), tuple(shlex.split(options.get("by", ""))), Path(makes) if makes else None)


def _texts(value: Any) -> list[str]:
    """Returns one or several values as texts, one per number of their ranges."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values for text in _expanded(str(each))]


def _expanded(text: str) -> Iterator[str]:
    if not (ranges := NUMBERS.search(text)):
        yield text
        return
    for part in ranges[1].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from _expanded(f"{text[: ranges.start()]}{number}{text[ranges.end() :]}")


def _matching(text: str) -> list[str]:
    return sorted(map(str, Path().glob(text))) or [text] if "*" in text else [text]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
