"""What a message asks of the partner: any of `pair`, `open`, `check`, `process`, or nothing.

The labels are those of the annotation guide that comes with the human dialogues: `pair` asks for information about named
reviewer-paper pairs, `open` for information about a whole reviewer, a whole paper or the table, `check` for agreement or an
opinion on a suggestion, `process` is any other real question. A question mark is neither needed nor enough.

Each clause is read by itself. It must open like a question or end in a question mark; the first rule that fits the words from
there on names its kind, and what the clause names tells `pair` from `open`. Text is masked and cut into sentences as for the
scripted partners; the rules here, in `rules` and in `scope` are the instrument's own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.questions import scope
from slim_rl.games.matching.questions.requests import ANNOUNCES, GAP, POINTS, request_at, spelled_out
from slim_rl.games.matching.questions.rules import INFORMATION_SEEKING, kind_at
from slim_rl.games.matching.questions.scope import PAPER, REVIEWER
from slim_rl.games.matching.reading.clauses import announces_list, goes_on, is_bare, word_clauses
from slim_rl.games.matching.reading.masking import NAME, READ_UP_TO, body
from slim_rl.games.matching.reading.pairing import by_side, named_pairs
from slim_rl.games.matching.reading.patterns import pattern
from slim_rl.games.matching.roster import Pair, Roster

LOOK_BACK = 20  # clauses of this message, and of the one before, in which a question looks for what it leaves out

# A question begins with one of these words,
_OPENERS = frozenset(
    """
    who whom whose who's where where's which what what's what're how how's how'd why when is are was were
    does do did has have got can could would will should shall may might isn't aren't doesn't don't any
    anything anyone anywhere thoughts tell let give share show list send check i i'm i'd want lay hit care
    interested you your sound sounds looks curious between
    """.split()  # noqa: SIM905
)
# which opens its clause, follows one of these,
_LEADS = frozenset(
    """
    , : ( ) - and but so or then because since okay well hm hmm hmmm hmmmm now also otherwise actually wait
    oh hey hi hello sure yes no please great cool perfect though however still just quick haha lol question
    thanks meanwhile
    """.split()  # noqa: SIM905
)
# or is so plainly turned round that it may stand anywhere.
_INVERTED = pattern(r"""how (?:good|bad|strong) (?:is|are|does)\b|(?:what|who|where) do you\b
    do you (?:have|see|know|think)\b|can you see\b|could you\b|would you\b|tell me (?:what|who|which|how|your)\b
    what(?:'s| is| are) your\b""")
# A clause without a question mark and without any of these asks nothing (the others of _OPENERS need one of them to follow).
_TELLING = (_OPENERS - {"i", "i'm"}) | {"if", "wonder", "wondering", "need", "like", "love", "first", "please"}
_ANY_HEAD = pattern(r"""\b(?=(?:who|where|which|what|how|why|any|anything|anyone|thoughts|sound|sounds)\b|(?:is|are|does
    do|did|has|have|can|could|would|should) (?:you|we|i|he|she|they|it|that|this|there|anyone|R\w+)\b)""")
# Where a clause holds a second question
_SECOND = pattern(r"""(?: ,)? (?:and|but) (?:also |then |more generally |more generally , )?(?=(?:what|who|which|how
    where)(?:'s)? (?:is|are|do|does|would)\b|(?:are|do|would|can|could|have) you\b)""")
# A wh-word inside a statement asks nothing: "not sure who", "that's what I have", "see how it goes".
_EMBEDDED = pattern(r"""\b((?<!me )(?<!us )(?<!you )know|knows|sure|see|seeing|is|are|was|it's|that's|here's|out|on|of
    for|to|with|matter|clue|remember|certain|at|tell you|depends|decide|understand|say|said|from|by|idea) (?=(?:who|whom
    what|where|which|how|why|when)(?:'s)? )|(?:\b(?:but|and)|,) so (?=(?:is|are|does|do|did|has|can|would|was)\b)""")
_STATE = pattern(r"""\b(?:information|scores?|unknown|blank|green|red|anything|any|data|values?|nothing|rating|good|bad
    strong|better than|too far|decent|high|low)\b""")
_SAYS = re.compile(r"\b(?:i|i'm|i've|he's|she's|it's|that's|they're|we|is|are|would|might|could|can)\b")
_CONSENT = pattern(r"""(?:^| )(?:okay|right|yes|(?<!or )no|deal|correct|agree|agreed|fine|cool)$
    \b(?:how you feel|what you think|if (?:that|you|it))\b""")
_ASKS_LEAVE = pattern(r"""\bif (?:that's|it's|that is|it is|there are|there's|there is|you're|everyone is) (?:okay|fine
    cool|no objections?|all right)(?: (?:with|by|for) you)?$|\bconfirm (?:that|if|whether) (?:we|i|you|this)\b""")
_DOUBT = re.compile(r"\bi guess$|\bguess what$")
_OF_YOU = re.compile(r"^(?:and )?(?:is it |are they )?(?:known|visible|unknown)(?: to you)?$")
# "Sofia on QuAC? Definitely not": who asks so answers it.
_NO_ANSWER_WANTED = re.compile(r"(?:(?:definitely|certainly|of course|surely|absolutely) not|nobody|no one)\b")
_INVITES = re.compile(r"\bask me\b|\b(?:name|which) (?:a |one )?reviewer\b")  # the partner, to ask about a pair
_PROPOSES = pattern(r"""\b(?:maybe|let's|i think we should|i think (?:R\w+|he|she|they) (?:would|could|might|should)
    perhaps)\b""")
_SUGGESTS = pattern(r"""\b(?:maybe|perhaps|possibly|let's|put|swap|move|switch|assign|could|might|would|works?|instead
    we|like this|go)\b""")


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a message: its label, and the (reviewer, paper) pairs it asks about (for `pair` only)."""

    label: str
    pairs: tuple[Pair, ...] = ()


def classify(text: str, previous: str | None = None, roster: Roster | None = None) -> frozenset[str]:
    """The labels of one message.

    Args:
        text: what was said; an action tag such as ``[message]`` is taken off.
        previous: the partner's message before it, if any; names in it give pronouns their meaning.
        roster: whose names to know; DialOp's own if None. Capitalised words count as names too.

    Returns:
        A subset of `KINDS`, empty for a message that asks nothing. Never raises.

    Examples:
        >>> sorted(classify("[message] Hi! What is Ava Li on BLEU? And who is your best for Electra?"))
        ['open', 'pair']
        >>> sorted(classify("[message] Ava Li on BLEU: 60."))
        []
    """
    return frozenset(question.label for question in questions(text, previous or "", roster))


def pairs_asked(text: str, roster: Roster | None = None, previous: str | None = None) -> list[Pair]:
    """The (reviewer, paper) indices a message asks about, in the order asked, each once. Never raises."""
    found = (pair for question in questions(text, previous or "", roster) for pair in question.pairs)
    return list(dict.fromkeys(found))


def questions(text: str, previous: str = "", roster: Roster | None = None) -> tuple[Question, ...]:
    """The questions of a message, in order; arguments as for `classify`. At most `READ_UP_TO` characters are read of each."""
    return _questions(text[:READ_UP_TO], previous[:READ_UP_TO], roster or Roster.default())


@lru_cache(maxsize=16384)
def _questions(text: str, previous: str, roster: Roster) -> tuple[Question, ...]:
    earlier = " ".join(clause for clause, _ in list(_clauses(previous, roster))[-LOOK_BACK:])
    found: list[Question] = []
    said: deque[str] = deque(maxlen=LOOK_BACK)  # the message's clauses so far
    listed: list[Pair] = []  # pairs that stand for themselves, or that it says it cannot see
    # Of the clause before: is it about pairs, does a list follow it, is it a question
    about_pairs = lists = asked = False
    for clause, marked in _clauses(text, roster):
        before = "".join(said)
        if asked and _NO_ANSWER_WANTED.match(clause):
            found.pop()
        asked = False
        goes = (about_pairs and marked and goes_on(clause, marked)) or (lists and is_bare(clause))
        if goes and (more := named_pairs(clause, before)):
            if found[-1].label == "open":
                found.pop()
            found.append(Question("pair", more))
        elif (kind := _kind(clause, marked)) is not None:
            start = kind[1]
            label, pairs = scope.settle(kind[0], clause[start:], f"{before}{clause[:start]}", earlier)
            if label == "open" and not NAME.search(clause) and POINTS.search(clause):
                pairs = tuple(dict.fromkeys(listed)) or scope.last_pair(before, earlier)
                label = "pair" if pairs else label
            if pairs and lists and found[-1].label == "open":
                found.pop()
            asked = marked
            found.append(Question(label, pairs))
            about_pairs = bool(pairs)
            lists = label in INFORMATION_SEEKING and (announces_list(clause) or _announces(clause))
        elif _INVITES.search(earlier) and is_bare(clause) and (pairs := named_pairs(clause)):
            found.append(Question("pair", pairs))
        else:
            about_pairs = lists = False
            if "R" in clause and "P" in clause and (is_bare(clause) or GAP.search(clause)):
                listed += named_pairs(clause)
        said.append(f"{clause} . ")
    return tuple(found)


def _clauses(text: str, roster: Roster) -> Iterator[tuple[str, bool]]:
    """The clauses of a message, cut where a second question begins: "who is on BLEU, and what is Ava on GLUE"."""
    for clause, marked in word_clauses(spelled_out(body(text, roster))):
        if " and " in clause or " but " in clause:
            *others, clause = _SECOND.split(clause)
            yield from ((part, marked and part.partition(" ")[0] in _OPENERS) for part in others)
        yield clause, marked


def _announces(clause: str) -> bool:
    return not NAME.search(clause) and ANNOUNCES.search(clause) is not None


def _kind(text: str, asks: bool) -> tuple[str, int] | None:
    """The kind of a clause and where its question starts; None if it asks nothing."""
    words = text.split(" ")
    request = request_at(text)
    if not asks and request is None and _TELLING.isdisjoint(words):
        return None
    plain = _EMBEDDED.sub(lambda match: match[0][:-1] + "~", text)
    start, before = 0, ","  # the clause begins as after a comma
    for word in plain.split(" "):
        if request is not None and start >= request:
            return "info", _from(request, text)
        if word in _OPENERS and (before in _LEADS or _INVERTED.match(plain, start)):
            kind = kind_at(plain, start, asks)
            if kind is not None:
                return kind, start
        start, before = start + len(word) + 1, word
    if request is not None:
        return "info", _from(request, text)
    if asks:
        return _unmarked(plain)
    return ("check", 0) if _ASKS_LEAVE.search(plain) else None


def _from(request: int, text: str) -> int:
    """Where a request starts: at its verb, or with the clause if it names only there whom it is about."""
    return 0 if all(by_side(text)) and not all(by_side(text[request:])) else request


def _unmarked(text: str) -> tuple[str, int] | None:
    """The same for a clause with a question mark and without a question's opening."""
    if _DOUBT.search(text):
        return None
    if _OF_YOU.search(text):
        return "state", 0
    if _CONSENT.search(text) or _PROPOSES.search(text):
        return "check", 0
    for head in _ANY_HEAD.finditer(text):
        kind = kind_at(text, head.end(), True)
        if kind is not None:
            return kind, head.end()
    named = bool(REVIEWER.search(text)), bool(PAPER.search(text))
    if any(named) and _STATE.search(text) and not _SAYS.search(text):
        return "state", 0
    if all(named):
        return "check", 0
    if any(named):
        return ("check" if _SUGGESTS.search(text) or text.count(" ") > 4 else "about"), 0
    return ("check" if _SUGGESTS.search(text) else "process"), 0
