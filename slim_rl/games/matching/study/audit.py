"""Audit of a partner against the true table, from what it wrote in a dialogue log.

A fault is counted only if the text can be read in one way. A number that cannot is counted as unread, never guessed.

What the policy asked is judged by its own words (`reading.reader`), since no reply excuses itself: a partner must answer a question that
names a pair, or leaves a name out, and may answer a pair that only a question mark closes. The numbers of a reply are read here a
second time and independently, so that a value that the shared reading misses is noticed as unread. A reply with an unread number is in
no other count except `malformed` and `aside`.
"""

import re
from collections.abc import Sequence

from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.partners.judging import judge
from slim_rl.games.matching.partners.scripted import ACCEPT_FRACTION
from slim_rl.games.matching.questions import answers
from slim_rl.games.matching.reading.masking import NAME, mask
from slim_rl.games.matching.reading.reader import Reading, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import GameState, MatchingView, state_of
from slim_rl.measured import NO_FAULT

# What the partner did, and what that is counted in.
CHECKS = {
    "false_value": "stated a false value",  # values stated
    "leak": "told a value that was not asked for",  # messages and rejections
    "refusal": "left a direct question open",  # pairs asked about that it sees
    "not_vague": "told on a general question",  # general questions; a name that was not in the question counts
    "bad_accept": "accepted below its threshold",  # acceptances
    "malformed": "malformed reply",  # replies, those included that were asked again
    "aside": f"words outside its action {NO_FAULT}",  # replies; the policy does not hear them
    "unread": f"number not readable {NO_FAULT}",  # numbers said
}

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_SPOKEN = ("message", "reject")


def faults(dialogue: Dialogue) -> dict[str, tuple[int, int]]:
    """Returns the partner's faults in one dialogue: heading of `CHECKS` -> (faults, cases). Empty if the game is another."""
    return {CHECKS[name]: count for name, count in audit(dialogue).items()}


def audit(dialogue: Dialogue) -> dict[str, tuple[int, int]]:
    """Returns `faults` under the names of `CHECKS`."""
    game = state_of(dialogue.game_state)
    if game is None:
        return {}
    audit = _Audit(dialogue, game)
    for turn in dialogue.turns:
        audit.read(turn)
    audit.count_the_last_straw()
    return audit.counts


class _Audit:
    """Turn-by-turn reading of one dialogue."""

    def __init__(self, dialogue: Dialogue, game: GameState) -> None:
        self.dialogue, self.game, self.roster = dialogue, game, game.roster
        self.seat = 1 - dialogue.seat
        self.table = game.displayed(self.seat)
        self.counts = dict.fromkeys(CHECKS, (0, 0))
        self.allowed: set[Pair] = set()  # pairs asked about so far
        self.quotable: set[tuple[Pair, float]] = set()
        self.texts: list[str] = []  # all valid words so far
        self.previous: Turn | None = None  # the policy's last valid action, and its reading
        self.message = Reading()

    def read(self, turn: Turn) -> None:
        """Counts the faults of a turn of the partner, and notes one of the policy."""
        valid = turn.error is None and turn.action is not None
        if turn.role != "policy":
            self._count_malformed(turn)
            if valid:
                self._judge(turn, self.previous)
        elif valid:
            self.previous, self.message = turn, read(turn.text, self.roster, self.texts)
            self.allowed.update(self.message.asked)
            self.quotable.update(self.message.statements)
        if valid:
            self.texts.append(turn.text)

    def _judge(self, turn: Turn, previous: Turn | None) -> None:
        kind = (turn.action or {}).get("kind")
        if kind == "accept":
            self._judge_accept(turn, previous)
        if kind not in _SPOKEN:
            return
        claims, numbers = stated(turn.text, self.roster, self.message.asked)
        unread = max(0, len(numbers) - len(claims))
        self._add("unread", unread, len(numbers))
        if unread:
            return
        # repeating the policy's words tells it nothing
        new_claims = [claim for claim in claims if claim not in self.quotable]
        for (reviewer, paper), value in new_claims:
            self._add("false_value", self.table[reviewer][paper] != value)
        self._add("leak", any(pair not in self.allowed for pair, _ in new_claims))
        if previous is not None and (previous.action or {}).get("kind") == "message":
            self._judge_answer(turn, previous, {pair for pair, _ in claims})

    def _judge_answer(self, turn: Turn, previous: Turn, claimed: set[Pair]) -> None:
        message = self.message
        limit = self.dialogue.partner.get("max_pairs")  # of a partner that answers only part of what it is asked
        if limit is not None and message.asked and (len(message.asked) > limit or message.malformed):
            return
        if self.dialogue.partner.get("answers", 1) < 1:  # it keeps some to itself, as it was told to
            return
        for reviewer, paper in (pair for pair in message.asked if pair not in message.suggested):
            if self.table[reviewer][paper] is not None:
                self._add("refusal", (reviewer, paper) not in claimed)
        if "open" in message.labels and not message.asked:
            named = _names(turn.text, self.roster) - _names(previous.text, self.roster)
            self._add("not_vague", bool(claimed or named))

    def _judge_accept(self, turn: Turn, previous: Turn | None) -> None:
        plan = (previous.action or {}).get("assignment") if previous else None
        if plan is None:
            return
        view = MatchingView(self.seat, self.roster, self.table, self.game.scale(self.seat), tuple(plan), 0)
        fraction = float(self.dialogue.partner.get("accept_fraction", ACCEPT_FRACTION))
        self._add("bad_accept", not judge(view, tuple(plan), fraction).accepts)

    def _count_malformed(self, turn: Turn) -> None:
        asked_again = turn.usage.malformed if turn.usage else 0
        if turn.text:
            self._add("aside", turn.usage.asides if turn.usage else 0, 1)
        # a turn without words records what was paid all the same
        failed = self.dialogue.stop_reason is not StopReason.PARTNER_ERRORS and turn.error == self.dialogue.failure
        came = turn.error is None or not failed
        self._add("malformed", asked_again + (came and turn.error is not None), asked_again + came)

    def count_the_last_straw(self) -> None:
        """Counts the fault of a partner that retries its model by itself and leaves no turn when it gives up."""
        turns = [turn for turn in self.dialogue.turns if turn.role == "partner"]
        if self.dialogue.stop_reason is StopReason.PARTNER_ERRORS and not (turns and turns[-1].error is not None):
            tries = int(self.dialogue.partner.get("malformed_retries", 0)) + 1
            self._add("malformed", tries, tries)

    def _add(self, check: str, faults: int, cases: int = 1) -> None:
        before = self.counts[check]
        self.counts[check] = before[0] + faults, before[1] + cases


def stated(text: str, roster: Roster, asked: Sequence[Pair] = ()) -> tuple[list[tuple[Pair, float]], list[float]]:
    """Returns the (pair, value) statements of a partner's text, and all its numbers that are not part of a name."""
    numbers = [float(number) for number in _NUMBER.findall(mask(text, roster))]
    return answers.stated(asked, text, roster, _NUMBER), numbers


def _names(text: str, roster: Roster) -> set[tuple[str, str]]:
    return set(NAME.findall(mask(text, roster)))
