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


_MARK = re.compile(
    r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']|\ba \? "
)  # a point's number, and a question mark spoken about

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
        self.mentioned: tuple[Pair, ...] | None = None  # the pairs of the last clause that names somebody
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
    def just_stated(self) -> set[Pair]:
        """Returns the pairs whose values the other player's last message states."""
        return {pair for sentence, _ in sentences("".join(self.earlier[-1:])) for pair, _ in stated_values(sentence)}

    @cached_property
    def invited(self) -> bool:
        """Returns True if the other player just asked which pair it wants to know."""
        return bool(self.earlier) and grammar.INVITES.search(self.earlier[-1]) is not None

    @cached_property
    def follows(self) -> bool:
        """Returns True if names alone may continue a question: one was invited, asked before, or just answered."""
        answer = self.earlier[-1] if self.earlier else ""
        last_own = self.earlier[-2] if len(self.earlier) > 1 else ""
        asked_before = "?" in last_own and NAME.search(last_own) is not None
        return self.invited or asked_before or (all(by_side(answer)) and grammar.ANSWERS.search(answer) is not None)

    def reading(self, malformed: bool) -> Reading:
        for sentence, marked in sentences(self.text):
            self.topic = ""
            clauses = grammar.cut(sentence)
            for number, clause in enumerate(clauses, 1):
                self._clause(clause, marked and number == len(clauses))
        asked = tuple(dict.fromkeys(self.asked))
        unread = self.unread and not (asked or self.general or self.suggests or self.statements)
        return Reading(
            asked,
            frozenset(self.floated),
            frozenset(self.labels),
            self.general,
            self.suggests,
            tuple(self.statements),
            malformed,
            unread,
        )

    def _clause(self, raw: str, marked: bool) -> None:
        clause = grammar.opened(text := words(raw))
        if not clause:
            self.asking = self.asking or grammar.announces(text)
            return
        names = NAME.search(clause) is not None
        act, pairs = self._act(text, clause, marked, names)
        if act in ("ask", "name") and pairs and self.just_stated.issuperset(pairs) and not grammar.heads(clause):
            act = "none"  # "62 for Ava on BLEU?", where the other player has just said so
        if act == "none" and self.named and grammar.IF_YOU_SEE.match(clause):
            act, pairs = "ask", [*self.named]
        if act == "none" and self.invited and names and not re.search(r"\d", NAME.sub("", text)):
            act, pairs = "ask", pairs or list(self._filled(clause))
        self.named = pairs if names and act == "none" and is_bare(clause) else ()
        if act == "none" and pairs and self.waiting and grammar.is_subordinate(clause):
            act = "ask"
        self._note(act, pairs, raw, clause, marked)
        if names or (grammar.points(text, "person") and grammar.points(text, "place")):
            named = tuple(pairs) or named_pairs(text)
            pointing = not named and grammar.points(text, "name")
            self.mentioned = self._filled(text) if pointing else named
        self.topic = f"{self.topic} , {text}" if self.topic else text
        self.clauses_before.append(text)
        self.asking = act == "ask"
        self.waiting = act == "ask" and not pairs and not grammar.seeks_whole(clause)

    def _act(self, text: str, clause: str, marked: bool, names: bool) -> tuple[grammar.Act, list[Pair]]:
        """Returns what a clause does, and the pairs that it names in doing so."""
        pairs = list(named_pairs(clause))
        if names and grammar.corrects(text) and (self.last or self.follows):
            self.asked = [pair for pair in self.asked if pair not in self.last]
            return "ask", pairs or list(self._filled(clause))
        if names and is_bare(clause):
            return self._bare(text, clause, marked, pairs)
        if grammar.ALL_OF_THEM.fullmatch(clause) and self.earlier and "?" in self.earlier[-1]:
            return "ask", list(self._mentioned_before())
        act = grammar.act_of(text, clause, marked)
        if act == "name" and not pairs and (self.last or self.follows):
            act = "ask"
        if act in ("ask", "suggest") and grammar.hands_on(clause):
            act = "ask" if grammar.LACKS.search(("", *self.earlier[-1:], *self.clauses_before)[-1]) else "suggest"
        if (
            act == "ask"
            and grammar.SAME_TO_YOU.fullmatch(clause)
            and self.clauses_before
            and grammar.plans(grammar.opened(self.clauses_before[-1]))
        ):
            act = "opinion"
        if (
            not names
            and act == "ask"
            and (echo := grammar.ECHO.match(clause))
            and self.earlier
            and re.search(rf"\b{echo[1]}\b", self.earlier[-1])
        ):
            act = "process"
        if grammar.SEARCHES.search(clause):
            pairs = []
        elif act in ("ask", "name") and not pairs:
            pairs = list(self._completed(clause, act))
        return act, pairs

    def _bare(self, text: str, clause: str, marked: bool, pairs: list[Pair]) -> tuple[grammar.Act, list[Pair]]:
        """Names and nothing else: a question with its mark, where one is invited, and after a question that they continue."""
        context = self.follows or bool(self.last)
        follows = (
            self.asking
            or self.invited
            or grammar.asks_bare(text)
            or (context and grammar.FOLLOWS.search(text) is not None)
        )
        if not (marked or follows):
            return "none", pairs
        if pairs:
            return ("ask" if follows else "name"), pairs
        if context:
            return "ask", list(self._filled(clause))
        if (" or " in text and any(map(NAME.search, (*self.earlier, *self.clauses_before)))) or self._complements(
            clause
        ):
            return "ask", list(self._filled(clause))
        return ("ask" if marked else "none"), pairs

    def _completed(self, clause: str, act: grammar.Act) -> Sequence[Pair]:
        """Returns the pairs of a question with a name left out, unless it asks about a whole side."""
        if without_excluded(clause) != clause:
            return ()
        reviewers, papers = by_side(clause)
        if reviewers or papers:
            return () if grammar.seeks_whole(clause) or not self._leaves_out(clause, act) else self._filled(clause)
        if (
            self.mentioned
            and grammar.points(clause, "choice")
            and 1 in map(len, map(set, zip(*self.mentioned, strict=True)))
        ):
            return self.mentioned if len(self.mentioned) > 1 else ()
        if grammar.seeks_whole(clause):
            return ()
        if not (grammar.heads(clause) or grammar.points(clause, "pair") or grammar.points(clause, "left out")):
            return ()
        lacks = bool(self.clauses_before) and grammar.LACKS.search(self.clauses_before[-1]) is not None
        topic = all(by_side(self.topic)) and not re.search(r"\d", NAME.sub("", self.topic))
        if grammar.points(clause, "general") and not (lacks or topic or grammar.points(clause, "pair")):
            return ()
        mentioned = self.mentioned if self.mentioned is not None else self._mentioned_before()
        if not mentioned:
            pointing = grammar.points(clause, "person") or grammar.points(clause, "place")
            return self._filled(clause) if pointing and " of " not in clause else ()
        return mentioned if len(mentioned) == 1 or lacks or grammar.points(clause, "several") else ()

    def _mentioned_before(self) -> tuple[Pair, ...]:
        """Returns the pairs of the last earlier message that names somebody."""
        for at in range(len(self.earlier) - 1, -1, -1):
            if NAME.search(self.earlier[at]):
                return named_pairs(self.earlier[at], " . ".join(self.earlier[:at]))
        return ()

    def _leaves_out(self, clause: str, act: grammar.Act) -> bool:
        """Returns True if a question that names one side is about the other one that was named last."""
        side = 0 if by_side(clause)[1] else 1
        topic = by_side(self.topic)
        if grammar.points(clause, "name") or (topic[side] and not topic[1 - side]) or (act == "name" and self.follows):
            return True
        if not self.clauses_before and self._complements(clause):
            return True
        message = by_side(" ".join(self.clauses_before))[side]
        candidates = message or by_side(" ".join(self.earlier[-1:]))[side]
        return (grammar.points(clause, "left out") and bool(candidates)) or (
            grammar.evaluates(clause) and len(candidates) == 1
        )

    def _complements(self, clause: str) -> bool:
        """Returns True if the words just before name one side only, and the clause the other one."""
        side = 0 if by_side(clause)[1] else 1
        before = (
            by_side((*self.earlier[-1:], *self.clauses_before)[-1])
            if self.clauses_before or self.earlier
            else (set(), set())
        )
        return bool(before[side]) and not before[1 - side]

    def _filled(self, clause: str) -> tuple[Pair, ...]:
        """Returns the pairs of a clause, completed by the names that stood last."""
        return named_pairs(clause, " . ".join((*self.earlier, *self.clauses_before)))

    def _note(self, act: grammar.Act, pairs: list[Pair], raw: str, clause: str, marked: bool) -> None:
        if act == "none":
            statements = stated_values(raw)
            self.statements += statements
            self.unread = self.unread or ((marked or bool(pairs)) and not (statements or grammar.states(clause)))
        elif act in ("ask", "name"):
            if pairs and self.waiting:
                self.labels.discard("open")
                self.labels.discard("process")
            about = "open" if grammar.is_about_scores(clause) else "process"
            if grammar.is_about_a_cell(clause):
                about = "pair"  # even where nobody of the roster is named, or too long ago to tell which
            self.general = self.general or not pairs
            self.labels.add(("pair" if act == "ask" else "check") if pairs else about)
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


def _names_both(text: str) -> bool:
    return all(by_side(text))


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
