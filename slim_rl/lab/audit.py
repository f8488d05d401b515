"""What each partner of a log did wrongly, as its game's audit finds it (`partner_faults` of its environment).

Rates have Wilson's 95% intervals, which take cases for independent; those of one dialogue are somewhat alike.
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
    """What one partner, or all of them together, did.

    Attributes:
        name: of the partner, for people: kind, model, prompt.
        dialogues: how many were read.
        found: what is checked -> [faults, cases].
    """

    name: str
    dialogues: int = 0
    found: dict[str, list[int]] = field(default_factory=dict)

    def add(self, found: Mapping[str, tuple[int, int]]) -> None:
        """One more dialogue."""
        self.dialogues += 1
        for what, (faults, cases) in found.items():
            sums = self.found.setdefault(what, [0, 0])
            sums[0] += faults
            sums[1] += cases

    def lines(self) -> Iterable[str]:
        """For a terminal: one a check."""
        yield f"{self.name}, {count(self.dialogues, 'dialogue')}"
        for what, (faults, cases) in self.found.items():
            yield f"  {what:<36}{_rate(faults, cases)}"


def audits(dialogues: Iterable[Dialogue]) -> tuple[list[Audit], int]:
    """An audit of each partner, in the order they first appear, and with several one of all; and the number of dialogues whose game
    checks nothing.
    """
    by_partner: dict[str, Audit] = {}
    together, skipped = Audit("all partners"), 0
    for dialogue in dialogues:
        found = faults_of(dialogue)
        if not found:
            skipped += 1
            continue
        by_partner.setdefault(repr(sorted(dialogue.partner.items())), Audit(_name(dialogue.partner))).add(found)
        together.add(found)
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
