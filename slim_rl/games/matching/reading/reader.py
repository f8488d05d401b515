"""Reader of English messages: what one message asks and states. Partners and annotator share it.

Two notions: what a clause does (`grammar`), and which pairs it names, a name left out being the last one named (`pairing`).

Invariants:
    `Reading.asked` holds no pair that only a statement, a plan, a search for consent or a general question names.
    What a reading cannot read is `unread`: partners are vague to it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from slim_rl.games.matching.reading import grammar
from slim_rl.games.matching.reading.clauses import is_bare, sentences, words
from slim_rl.games.matching.reading.form import is_malformed
from slim_rl.games.matching.reading.grammar import INFORMATION_SEEKING, KINDS
from slim_rl.games.matching.reading.masking import NAME, READ_UP_TO, body, untagged
from slim_rl.games.matching.reading.pairing import by_side, named_pairs, stated_values, without_excluded
from slim_rl.games.matching.roster import Pair, Roster

CLAUSES_BACK = 20  # clauses of a message in which a later one looks for what it leaves out
LOOK_BACK = 4  # messages before this one in which a name that is left out may have been said

# A point's number, and a question mark spoken about
_MARK = re.compile(r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']|\ba \? ")
_FORM = re.compile(r"(?:^[^\n\d]*[RP]\d+ ?[:=][ _]*(?:\n|\Z)){2,}", re.MULTILINE)  # lines to be filled in
_BLANK = re.compile(r" ?[:=][ _]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of one message.

    Attributes:
        asked: the (reviewer, paper) pairs that it asks about, in the order asked, each once.
        suggested: those of them that it only names, which the annotation guide calls a suggestion.
        labels: its kinds of question by the annotation guide, which calls a pair with a question mark alone a suggestion.
        general: whether it asks something else: about a whole reviewer, the table, or no score at all.
        suggests: whether it suggests or seeks consent ("Should we put Ava on BLEU?").
        statements: the (pair, value) statements in it, in order.
        malformed: whether it is no sentence (see `form`); what it asks and states is a guess then.
        unread: whether it has a question mark or a pair of names, and none of its clauses was read.
    """

    asked: tuple[Pair, ...] = ()
    suggested: frozenset[Pair] = frozenset()
    labels: frozenset[str] = frozenset()
    general: bool = False
    suggests: bool = False
    statements: tuple[tuple[Pair, float], ...] = ()
    malformed: bool = False
    unread: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Returns its kinds of question, in the order of `KINDS`: the guide's, and "pair" for a pair."""
        return tuple(kind for kind in KINDS if kind in self.labels or (kind == "pair" and self.asked))

    @property
    def seeking(self) -> bool:
        """Returns True if it seeks information."""
        return not INFORMATION_SEEKING.isdisjoint(self.kinds)


def read(text: str, roster: Roster, before: Sequence[str] = ()) -> Reading:
    """Reads the first `READ_UP_TO` characters of a message, its action tag on or off. Never raises.

    Args:
        before: the messages before it, the latest last, which is the other player's.
    """
    return _read(text[:READ_UP_TO], roster, tuple(each[:READ_UP_TO] for each in before[-LOOK_BACK:]))


@lru_cache(maxsize=16384)
def _read(text: str, roster: Roster, before: tuple[str, ...]) -> Reading:
    if untagged(text)[0] in ("propose", "accept"):
        return Reading()
    return _Reader(text, roster, before).reading(is_malformed(text, roster))


class _Reader:
    """State while one message is read, clause by clause."""

    def __init__(self, text: str, roster: Roster, before: tuple[str, ...]) -> None:
        self.text = _FORM.sub(lambda lines: _BLANK.sub("?", lines[0]), _MARK.sub("", body(text, roster)))
        self.roster, self.before = roster, before
        self.clauses_before: deque[str] = deque(maxlen=CLAUSES_BACK)  # the clauses before the present one
        self.topic = ""  # those of the same sentence
        self.asking = False  # whether the clause before asked
        self.named: Sequence[Pair] = ()  # what the clause before named, and nothing else
        self.waiting = False  # whether it left out what it asks about
        self.mentioned: list[Pair] | None = None  # the pairs of the last clause that names somebody
        self.asked: list[Pair] = []
        self.last: list[Pair] = []  # what the last asking clause asked about
        self.floated: set[Pair] = set()
        self.labels: set[str] = set()
        self.statements: list[tuple[Pair, float]] = []
        self.general = self.suggests = self.unread = False

    @cached_property
    def earlier(self) -> list[str]:
        """Returns the messages before, without plans, whose names cannot be left out later."""
        spoken = (each for each in self.before if untagged(each)[0] not in ("propose", "accept"))
        return [body(each, self.roster) for each in spoken]

    @cached_property
    def heard(self) -> str:
        """Returns the other player's last message; "" without one."""
        return self.earlier[-1] if self.earlier else ""

    @property
    def just_before(self) -> str:
        """Returns the clause before the present one, or else the other player's last message."""
        return self.clauses_before[-1] if self.clauses_before else self.heard

    @cached_property
    def just_stated(self) -> set[Pair]:
        """Returns the pairs whose values the other player's last message states."""
        return {pair for sentence, _ in sentences(self.heard) for pair, _ in stated_values(sentence)}

    @cached_property
    def invited(self) -> bool:
        """Returns True if the other player just asked which pair it wants to know."""
        return grammar.INVITES.search(self.heard) is not None

    @cached_property
    def follows(self) -> bool:
        """Returns True if names alone may continue a question: one was invited, asked before, or just answered."""
        last_own = self.earlier[-2] if len(self.earlier) > 1 else ""
        asked_before = "?" in last_own and NAME.search(last_own) is not None
        answered = all(by_side(self.heard)) and grammar.ANSWERS.search(self.heard) is not None
        return self.invited or asked_before or answered

    def reading(self, malformed: bool) -> Reading:
        for sentence, marked in sentences(self.text):
            self.topic = ""
            clauses = grammar.cut(sentence)
            for number, clause in enumerate(clauses, 1):
                self._clause(clause, marked and number == len(clauses))
        unread = self.unread and not (self.asked or self.general or self.suggests or self.statements)
        asks = tuple(dict.fromkeys(self.asked)), frozenset(self.floated), frozenset(self.labels)
        return Reading(*asks, self.general, self.suggests, tuple(self.statements), malformed, unread)

    def _clause(self, raw: str, marked: bool) -> None:
        clause = grammar.opened(text := words(raw))
        if not clause:
            self.asking = self.asking or "question" in text
            return
        names = NAME.search(clause) is not None
        act, pairs = self._act(text, clause, marked, names)
        if act in ("ask", "name") and pairs and self.just_stated.issuperset(pairs) and not grammar.heads(clause):
            act = "none"  # "62 for Ava on BLEU?", where the other player has just said so
        if act == "none" and self.named and grammar.IF_YOU_SEE.match(clause):
            act, pairs = "ask", [*self.named]
        if act == "none" and self.invited and names and not re.search(r"\d", NAME.sub("", text)):
            act, pairs = "ask", pairs or self._filled(clause)
        self.named = pairs if names and act == "none" and is_bare(clause) else ()
        if act == "none" and pairs and self.waiting and grammar.SUBORDINATE.match(clause):
            act = "ask"
        self._note(act, pairs, raw, clause, marked)
        if names or (grammar.points(text, "person") and grammar.points(text, "place")):
            named = pairs or list(named_pairs(text))
            pointing = not named and grammar.points(text, "name")
            self.mentioned = self._filled(text) if pointing else named
        self.topic = f"{self.topic} , {text}" if self.topic else text
        self.clauses_before.append(text)
        self.asking = act == "ask"
        self.waiting = act == "ask" and not pairs and not grammar.WHOLE.search(clause)

    def _act(self, text: str, clause: str, marked: bool, names: bool) -> tuple[grammar.Act, list[Pair]]:
        """Returns what a clause does, and the pairs that it names in doing so."""
        pairs = list(named_pairs(clause))
        if names and grammar.CORRECTS.search(text) and (self.last or self.follows):
            self.asked = [pair for pair in self.asked if pair not in self.last]
            return "ask", pairs or self._filled(clause)
        if names and is_bare(clause):
            return self._bare(text, clause, marked, pairs)
        if grammar.ALL_OF_THEM.fullmatch(clause) and "?" in self.heard:
            return "ask", self._mentioned_before()
        act = grammar.act_of(text, clause, marked)
        if act == "name" and not pairs and (self.last or self.follows):
            act = "ask"
        if act in ("ask", "suggest") and grammar.HANDS_ON.search(clause):
            act = "ask" if grammar.LACKS.search(self.just_before) else "suggest"
        if act == "ask" and self.clauses_before and grammar.SAME_TO_YOU.fullmatch(clause):
            act = "opinion" if grammar.plans(grammar.opened(self.just_before)) else "ask"
        echo = grammar.ECHO.match(clause) if act == "ask" and not names else None
        if echo and re.search(rf"\b{echo[1]}\b", self.heard):
            act = "process"
        if grammar.SEARCHES.search(clause):
            pairs = []
        elif act in ("ask", "name") and not pairs:
            pairs = self._completed(clause, act)
        return act, pairs

    def _bare(self, text: str, clause: str, marked: bool, pairs: list[Pair]) -> tuple[grammar.Act, list[Pair]]:
        """Names and nothing else: a question with its mark, where one is invited, and after a question that they continue."""
        context = self.follows or bool(self.last)
        asks = grammar.NOUN_ASKS.search(text) and not text.startswith("thank")
        follows = self.asking or self.invited or asks or (context and grammar.FOLLOWS.search(text))
        if not (marked or follows):
            return "none", pairs
        if pairs:
            return ("ask" if follows else "name"), pairs
        chooses = " or " in text and any(map(NAME.search, (*self.earlier, *self.clauses_before)))
        if context or chooses or self._complements(clause):
            return "ask", self._filled(clause)
        return ("ask" if marked else "none"), pairs

    def _completed(self, clause: str, act: grammar.Act) -> list[Pair]:
        """Returns the pairs of a question with a name left out, unless it asks about a whole side."""
        whole = grammar.WHOLE.search(clause)
        if without_excluded(clause) != clause:
            return []
        if any(by_side(clause)):
            return self._filled(clause) if not whole and self._leaves_out(clause, act) else []
        shared = 1 in map(len, map(set, zip(*(self.mentioned or ()), strict=True)))  # one reviewer, or one paper
        if self.mentioned and shared and grammar.points(clause, "choice"):
            return self.mentioned if len(self.mentioned) > 1 else []
        if whole or not (grammar.heads(clause) or grammar.points(clause, "pair", "left out")):
            return []
        lacks = bool(self.clauses_before) and grammar.LACKS.search(self.just_before) is not None
        topic = all(by_side(self.topic)) and not re.search(r"\d", NAME.sub("", self.topic))
        if grammar.points(clause, "general") and not (lacks or topic or grammar.points(clause, "pair")):
            return []
        mentioned = self.mentioned if self.mentioned is not None else self._mentioned_before()
        if not mentioned:
            return self._filled(clause) if grammar.points(clause, "person", "place") and " of " not in clause else []
        return mentioned if len(mentioned) == 1 or lacks or grammar.points(clause, "several") else []

    def _mentioned_before(self) -> list[Pair]:
        """Returns the pairs of the last earlier message that names somebody."""
        for at in range(len(self.earlier) - 1, -1, -1):
            if NAME.search(self.earlier[at]):
                return list(named_pairs(self.earlier[at], " . ".join(self.earlier[:at])))
        return []

    def _leaves_out(self, clause: str, act: grammar.Act) -> bool:
        """Returns True if a question that names one side is about the other one that was named last."""
        side = 0 if by_side(clause)[1] else 1
        topic = by_side(self.topic)
        if grammar.points(clause, "name") or (topic[side] and not topic[1 - side]) or (act == "name" and self.follows):
            return True
        if not self.clauses_before and self._complements(clause):
            return True
        message = by_side(" ".join(self.clauses_before))[side]
        candidates = message or by_side(self.heard)[side]
        evaluates = len(candidates) == 1 and grammar.EVALUATES.search(clause) is not None
        return evaluates or (bool(candidates) and grammar.points(clause, "left out"))

    def _complements(self, clause: str) -> bool:
        """Returns True if the words just before name one side only, and the clause the other one."""
        side = 0 if by_side(clause)[1] else 1
        before = by_side(self.just_before)
        return bool(before[side]) and not before[1 - side]

    def _filled(self, clause: str) -> list[Pair]:
        """Returns the pairs of a clause, completed by the names that stood last."""
        return list(named_pairs(clause, " . ".join((*self.earlier, *self.clauses_before))))

    def _note(self, act: grammar.Act, pairs: list[Pair], raw: str, clause: str, marked: bool) -> None:
        if act == "none":
            statements = stated_values(raw)
            self.statements += statements
            self.unread = self.unread or ((marked or bool(pairs)) and not (statements or grammar.states(clause)))
        elif act in ("ask", "name"):
            if pairs and self.waiting:
                self.labels.discard("open")
                self.labels.discard("process")
            self.general = self.general or not pairs
            self.labels.add(("pair" if act == "ask" else "check") if pairs else grammar.kind_of(clause))
            self.floated.update(pairs if act == "name" else ())
            self.asked += pairs
            self.last = pairs or self.last
        elif act in ("suggest", "propose"):
            self.suggests = True
            if act == "suggest":
                self.labels.add("check")
        else:
            self.general = True
            self.labels.add("check" if act == "opinion" else act)


def classify(text: str, previous: str | None = None, roster: Roster | None = None) -> frozenset[str]:
    """Returns the labels of one message, a subset of `KINDS`; empty for a message that asks nothing. Never raises.

    Args:
        text: the message; an action tag such as ``[message]`` is taken off.
        previous: the partner's message before it, if any.
        roster: the names to know; DialOp's if None.

    Examples:
        >>> sorted(classify("[message] Hi! What is Ava Li on BLEU? And who is your best for Electra?"))
        ['open', 'pair']
        >>> sorted(classify("[message] Ava Li on BLEU: 60."))
        []
    """
    return read(text, roster or Roster.default(), [previous] if previous else []).labels


def pairs_asked(text: str, roster: Roster | None = None, previous: str | None = None) -> list[Pair]:
    """Returns the (reviewer, paper) indices that a message asks about, in the order asked, each once. Never raises."""
    reading = read(text, roster or Roster.default(), [previous] if previous else [])
    return [pair for pair in reading.asked if pair not in reading.suggested]
