"""A check looks at one thing and answers with one line of the table: what it found and, unless all is well, the mend.

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
        mend: what to do about it; empty when all is well.
    """

    name: str
    status: Status
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined.

    Attributes:
        config: the run's config.
        backend: "trl", "slime" or "verl".
        gpus: GPUs of a node that the run will use; None for all that are there.
        call_partner: make one real call to the partner.
    """

    config: Config
    backend: str
    gpus: int | None = None
    call_partner: bool = True


Examination = Callable[[Patient], Check | Sequence[Check]]


def examine(patient: Patient, examinations: Sequence[tuple[str, Examination]]) -> list[Check]:
    """Runs named examinations one after another. What one raises becomes its failed check."""
    checks: list[Check] = []
    for name, examination in examinations:
        try:
            found = examination(patient)
        except Exception as error:  # a check that breaks is a finding like any other
            mend = "" if isinstance(error, SlimError) else "Mend what the message names."  # a SlimError says how itself
            found = Check(name, "fail", sentence(error), mend)
        checks += [found] if isinstance(found, Check) else found
    return checks


def sentence(error: BaseException) -> str:
    """An exception on one line, of at most 400 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ImportError | AttributeError | TypeError | KeyError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 400 else text[:397] + "..."
