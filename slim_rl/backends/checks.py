"""A check looks at one thing and answers with one line of the table: what it found and, unless all is well, how to fix it.

A check never raises: `examine` turns whatever goes wrong inside one into a failed line of its own, so that the others are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slim_rl.config import Config
from slim_rl.errors import SlimError

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table.

    Attributes:
        name: what was looked at.
        status: "fail" means that the run would not start or would be wasted, "warn" that it may disappoint.
        found: what is there.
        fix: what to do about it; empty when all is well.
    """

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The run that is checked.

    Attributes:
        config: the run's.
        gpus: GPUs of a node that the run will use; None for all that are there.
        call_partner: make one real call to the partner.
    """

    config: Config
    gpus: int | None = None
    call_partner: bool = True

    @property
    def backend(self) -> str:
        return self.config.train.backend


Examination = Callable[[Target], Check | Sequence[Check]]


def examine(target: Target, examinations: Sequence[tuple[str, Examination]]) -> list[Check]:
    """Runs named examinations one after another. What one raises becomes its failed check."""
    checks: list[Check] = []
    for name, examination in examinations:
        try:
            found = examination(target)
        except Exception as error:  # a check that breaks is a finding like any other
            fix = "" if isinstance(error, SlimError) else "Fix what the message names."  # a SlimError says how itself
            found = Check(name, "fail", sentence(error), fix)
        checks += [found] if isinstance(found, Check) else found
    return checks


def sentence(error: BaseException) -> str:
    """An exception on one line, of at most 400 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ImportError | AttributeError | TypeError | KeyError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 400 else text[:397] + "..."
