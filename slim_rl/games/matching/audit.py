"""Checks a partner against the true table: what it said in a dialogue log, not what it was told to do.

    a fault is counted only where the words can be read one way; a number that cannot is counted as unread, never guessed

What the policy asked is judged by its own words (`questions.asked.asked`), since no reply excuses itself. Two readers judge it
(`reading.interpretation` and `questions.classify`): they share how a text is masked and cut, but no rules. A partner must answer what both
take for a direct question, and may tell what either does. Which numbers a reply holds is read here a second time and independently,
so that a value that the shared reading misses is noticed as unread. A reply with an unread number is in no other count but `malformed`.
Rates have Wilson's 95% intervals, which take cases for independent; those of one dialogue are somewhat alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.errors import DataError
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.partners.judging import judge
from slim_rl.games.matching.questions import answers
from slim_rl.games.matching.questions.asked import asked
from slim_rl.games.matching.questions.classify import classify, pairs_asked
from slim_rl.games.matching.reading.interpretation import Interpretation, interpret
from slim_rl.games.matching.reading.masking import NAME, mask
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.view import MatchingView

# What the partner did, and what that is counted in.
CHECKS = {
    "false_value": "stated a false value",  # values stated
    "leak": "told a value that was not asked for",  # messages and rejections
    "refusal": "left a direct question open",  # pairs asked about that it sees
    "not_vague": "told on a general question",  # general questions; a name that was not in the question counts
    "bad_accept": "accepted below its threshold",  # acceptances
    "malformed": "malformed reply",  # replies, those included that were asked again
    "unread": "number not readable (no fault)",  # numbers said
}
DEFAULT_ACCEPT_FRACTION = 0.75  # for partners whose identity names none

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_SPOKEN = ("message", "reject")


@dataclass(slots=True)
class Rate:
    """Faults among cases."""

    faults: int = 0
    cases: int = 0

    def add(self, faults: int, cases: int) -> None:
        self.faults += faults
        self.cases += cases

    @property
    def rate(self) -> float | None:
        return self.faults / self.cases if self.cases else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95% interval; None without a case."""
        if not self.cases:
            return None
        from statsmodels.stats.proportion import proportion_confint

        low, high = proportion_confint(self.faults, self.cases, alpha=0.05, method="wilson")
        return float(low), float(high)


@dataclass(slots=True)
class PartnerAudit:
    """What one partner did.

    Attributes:
        identity: as its dialogues record it; empty for all partners together.
        dialogues: how many were read.
        rates: by the names of `CHECKS`.
    """

    identity: dict[str, Any]
    dialogues: int = 0
    rates: dict[str, Rate] = field(default_factory=lambda: {name: Rate() for name in CHECKS})

    @property
    def name(self) -> str:
        """Short, for people: kind, model, prompt."""
        parts = [str(self.identity.get("kind", "?")), str(self.identity.get("model") or "")]
        parts.append(str(self.identity.get("prompt_sha256") or "")[:8])
        return " ".join(filter(None, parts))

    def add(self, other: PartnerAudit) -> None:
        self.dialogues += other.dialogues
        for name, rate in other.rates.items():
            self.rates[name].add(rate.faults, rate.cases)


@dataclass(slots=True)
class AuditReport:
    """The audit of a log.

    Attributes:
        partners: one for each partner identity, in the order they first appear.
        overall: all of them together.
        skipped: dialogues of games that are not the matching game.
    """

    partners: list[PartnerAudit]
    overall: PartnerAudit
    skipped: int = 0

    def table(self) -> str:
        """One block a partner, one line a check."""
        blocks = [*self.partners, *([self.overall] if len(self.partners) > 1 else [])]
        lines = []
        for audit in blocks:
            lines.append(f"{audit.name if audit.identity else 'all partners'}, {audit.dialogues} dialogues")
            for name, what in CHECKS.items():
                rate = audit.rates[name]
                found = "no case"
                if rate.rate is not None and rate.interval is not None:
                    low, high = rate.interval
                    found = f"{rate.rate:8.2%}  [{low:7.2%}, {high:7.2%}]  {rate.faults} of {rate.cases}"
                lines.append(f"  {what:<32}{found}")
            lines.append("")
        if self.skipped:
            lines.append(f"{self.skipped} dialogues of other games were left out.")
        return "\n".join(lines).rstrip()


def audit_dialogues(dialogues: Iterable[Dialogue]) -> AuditReport:
    """Audits dialogues of any partners, one at a time."""
    by_identity: dict[str, PartnerAudit] = {}
    overall, skipped = PartnerAudit({}), 0
    for dialogue in dialogues:
        audit = audit_dialogue(dialogue)
        if audit is None:
            skipped += 1
            continue
        key = json.dumps(dialogue.partner, sort_keys=True)
        by_identity.setdefault(key, PartnerAudit(dialogue.partner)).add(audit)
        overall.add(audit)
    return AuditReport(list(by_identity.values()), overall, skipped)


def audit_dialogue(dialogue: Dialogue) -> PartnerAudit | None:
    """What the partner did in one dialogue; None if the game is not the matching game."""
    try:
        game = GameState.from_dict(dialogue.game_state)
    except DataError:
        return None
    return _Audit(dialogue, game).run()


def faults(dialogue: Dialogue) -> dict[str, tuple[int, int]]:
    """What the partner did wrongly in one dialogue: the words of `CHECKS` -> (faults, cases)."""
    audit = audit_dialogue(dialogue)
    rates = {} if audit is None else audit.rates
    return {CHECKS[name]: (rate.faults, rate.cases) for name, rate in rates.items() if name != "unread"}


class _Audit:
    """One dialogue, read turn by turn."""

    def __init__(self, dialogue: Dialogue, game: GameState) -> None:
        self.dialogue, self.game, self.roster = dialogue, game, game.roster
        self.seat = 1 - dialogue.seat
        self.table = game.displayed(self.seat)
        self.audit = PartnerAudit(dialogue.partner, dialogues=1)
        self.allowed: set[Pair] = set()  # pairs asked about so far, as either reader has it
        self.quotable: set[tuple[Pair, float]] = set()
        self.partner_said = ""

    def run(self) -> PartnerAudit:
        previous: Turn | None = None  # the policy's last valid action
        for turn in self.dialogue.turns:
            if turn.role == "policy":
                if turn.error is None and turn.action is not None:
                    previous = turn
                    self._note_policy(turn)
                continue
            self._count_malformed(turn)
            if turn.error is None and turn.action is not None:
                self._judge(turn, previous)
                self.partner_said = turn.text
        self._count_the_last_straw()
        return self.audit

    def _note_policy(self, turn: Turn) -> None:
        self.allowed.update(asked(turn.text, self.partner_said, self.roster).pairs)
        self.quotable.update(interpret(turn.text, self.roster).told)

    def _judge(self, turn: Turn, previous: Turn | None) -> None:
        kind = (turn.action or {}).get("kind")
        if kind == "accept":
            self._judge_accept(turn, previous)
        if kind not in _SPOKEN:
            return
        message = interpret(previous.text, self.roster) if previous else Interpretation()
        claims, numbers = stated(turn.text, self.roster, message.asked)
        unread = max(0, len(numbers) - len(claims))
        self.audit.rates["unread"].add(unread, len(numbers))
        if unread:
            return
        own = [claim for claim in claims if claim not in self.quotable]  # repeating the policy's words tells it nothing
        for (reviewer, paper), value in own:
            self._count("false_value", self.table[reviewer][paper] != value)
        self._count("leak", any(pair not in self.allowed for pair, _ in own))
        if previous is not None and (previous.action or {}).get("kind") == "message":
            self._judge_answer(turn, previous, message, {pair for pair, _ in claims})

    def _judge_answer(self, turn: Turn, previous: Turn, message: Interpretation, claimed: set[Pair]) -> None:
        limit = self.dialogue.partner.get("max_pairs")  # of a partner that answers only part of what it is asked
        if limit is not None and message.asked and (len(message.asked) > limit or message.malformed):
            return
        if self.dialogue.partner.get("answers", 1) < 1:  # it keeps some to itself, as it was told to
            return
        agreed = set(message.asked) & set(pairs_asked(previous.text, self.roster, self.partner_said))
        for reviewer, paper in agreed:
            if self.table[reviewer][paper] is not None:
                self._count("refusal", (reviewer, paper) not in claimed)
        labels = classify(previous.text, self.partner_said, self.roster)
        if message.general and not message.asked and "open" in labels and "pair" not in labels:
            named = _names(turn.text, self.roster) - _names(previous.text, self.roster)
            self._count("not_vague", bool(claimed or named))

    def _judge_accept(self, turn: Turn, previous: Turn | None) -> None:
        plan = (previous.action or {}).get("assignment") if previous else None
        if plan is None:
            return
        view = MatchingView(self.seat, self.roster, self.table, self.game.scale(self.seat), tuple(plan), 0)
        fraction = float(self.dialogue.partner.get("accept_fraction", DEFAULT_ACCEPT_FRACTION))
        self._count("bad_accept", not judge(view, tuple(plan), fraction).accepts)

    def _count_malformed(self, turn: Turn) -> None:
        asked_again = int((turn.usage or {}).get("malformed") or 0)
        self.audit.rates["malformed"].add(asked_again + (turn.error is not None), asked_again + 1)

    def _count_the_last_straw(self) -> None:
        """A partner that asks its model again by itself leaves no turn when it gives up."""
        turns = [turn for turn in self.dialogue.turns if turn.role == "partner"]
        if self.dialogue.stop_reason is StopReason.PARTNER_ERRORS and not (turns and turns[-1].error is not None):
            tries = int(self.dialogue.partner.get("malformed_retries", 0)) + 1
            self.audit.rates["malformed"].add(tries, tries)

    def _count(self, check: str, fault: bool) -> None:
        self.audit.rates[check].add(fault, 1)


def stated(text: str, roster: Roster, asked: Sequence[Pair] = ()) -> tuple[list[tuple[Pair, float]], list[float]]:
    """The (pair, value) statements of a partner's words, and all numbers in them that are not part of a name."""
    numbers = [float(number) for number in _NUMBER.findall(mask(text, roster))]
    return answers.stated(asked, text, roster, _NUMBER), numbers


def _names(text: str, roster: Roster) -> set[tuple[str, str]]:
    return set(NAME.findall(mask(text, roster)))
