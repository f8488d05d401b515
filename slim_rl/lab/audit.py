"""Audit of a log's partners, by their game's `partner_faults`.

Rates have Wilson's 95% intervals, which assume independent cases, although cases of one dialogue are correlated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slim_rl.analysis.partner_faults import faults_of
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import count


@dataclass(slots=True)
class Audit:
    """Faults of one partner, or of all together.

    Attributes:
        name: kind, model and prompt of the partner.
        dialogues: number of dialogues.
        faults: [faults, cases] by kind of fault.
    """

    name: str
    dialogues: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)

    def add(self, faults: Mapping[str, tuple[int, int]]) -> None:
        """Adds the (faults, cases) of one dialogue."""
        self.dialogues += 1
        for kind, (number, cases) in faults.items():
            sums = self.faults.setdefault(kind, [0, 0])
            sums[0] += number
            sums[1] += cases

    def lines(self) -> Iterable[str]:
        """Yields lines for a terminal, one per kind of fault."""
        yield f"{self.name}, {count(self.dialogues, 'dialogue')}"
        for kind, (faults, cases) in self.faults.items():
            yield f"  {kind:<36}{_rate(faults, cases)}"


def audits(dialogues: Iterable[Dialogue]) -> tuple[list[Audit], int]:
    """Returns the audits of the partners (of all together last), and the number of dialogues without one."""
    by_partner: dict[str, Audit] = {}
    together, skipped = Audit("all partners"), 0
    for dialogue in dialogues:
        faults = faults_of(dialogue)
        if not faults:
            skipped += 1
            continue
        by_partner.setdefault(repr(sorted(dialogue.partner.items())), Audit(_name(dialogue.partner))).add(faults)
        together.add(faults)
    each = list(by_partner.values())
    return [*each, together] if len(each) > 1 else each, skipped


def _name(identity: Mapping[str, Any]) -> str:
    parts = [str(identity.get("kind", "?")), str(identity.get("model") or "")]
    return " ".join(filter(None, [*parts, str(identity.get("prompt_sha256") or "")[:8]]))


def _rate(faults: int, cases: int) -> str:
    if not cases:
        return "no case"
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(faults, cases, alpha=0.05, method="wilson")
    return f"{faults / cases:7.2%} [{low:7.2%}, {high:7.2%}] {faults} of {cases}"
