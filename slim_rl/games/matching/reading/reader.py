"""Reader of English messages: what one message asks and states. Partners and annotator share it.

Each clause is read by itself: what it does (`acts`), and which pairs it names (`pairing`); names left out are those said last.

Invariants:
    `Reading.asked` holds no pair that only a statement, a plan, a search for consent or a general question names.
    What a reading cannot read is `unread`: partners are vague to it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from slim_rl.games.matching.reading import acts
from slim_rl.games.matching.reading.acts import INFORMATION_SEEKING, KINDS
from slim_rl.games.matching.reading.masking import NAME, READ_UP_TO, body, is_bare, sentences, untagged, words
from slim_rl.games.matching.reading.pairing import by_side, named_pairs, stated_values, without_excluded
from slim_rl.games.matching.reading.wording import MAY_REPEAT, PATTERNS, begins, has
from slim_rl.games.matching.roster import Pair, Roster

LOOK_BACK = 4  # messages before this one in which a name that is left out may have been said
CLAUSES_BACK = 20  # the same, in clauses

_NUMBER = re.compile(r"(?<![RP\d_])\d")


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
        malformed: whether it is no sentence; what it asks and states is a guess then.
        unread: whether it has a question mark, and none of its clauses was read.
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
        before: the messages before it, the other player's last one last.
    """
    return _read(text[:READ_UP_TO], roster, tuple(each[:READ_UP_TO] for each in before[-LOOK_BACK:]))


@lru_cache(maxsize=16384)
def _read(text: str, roster: Roster, before: tuple[str, ...]) -> Reading:
    tag, rest = untagged(text)
    if tag in ("propose", "accept"):
        return Reading()
    spoken = [body(each, roster) for each in before if untagged(each)[0] not in ("propose", "accept")]
    masked = body(text, roster)
    # "Li Li" may be one name, and two may be one slip
    twice = _says_twice(" ".join(rest.lower().split(" "))) and _says_twice(masked)
    malformed = twice or has("control", rest) or has("garbled", masked)
    return _Reader(PATTERNS["mark"].sub("", masked), spoken).reading(malformed)


def _says_twice(text: str) -> bool:
    return any(match[1] not in MAY_REPEAT for match in PATTERNS["twice"].finditer(text))


class _Reader:
    """State while one message is read, clause by clause."""

    def __init__(self, text: str, spoken: list[str]) -> None:
        self.text = text
        self.said = spoken  # the messages before, and then this one's clauses so far
        heard = spoken[-1] if spoken else ""
        own = spoken[-2] if len(spoken) > 1 else ""
        self.invited = has("invites", heard)  # the other player asked which pair it wants to know
        self.answered = all(by_side(heard)) and has("answers", heard)
        # Names alone may continue a question: one was invited, just answered, or asked before.
        self.follows = self.invited or self.answered or ("?" in own and NAME.search(own) is not None)
        self.asking = False  # whether the clause before asked
        self.names_nobody = True  # so far
        self.mentioned: list[Pair] = []  # the pairs of the last clause that names somebody
        self.last: list[Pair] = []  # what the last asking clause asked about
        self.asked: list[Pair] = []
        self.suggested: set[Pair] = set()
        self.labels: set[str] = set()
        self.statements: list[tuple[Pair, float]] = []
        self.general = self.suggests = False

    def reading(self, malformed: bool) -> Reading:
        for sentence, marked in sentences(self.text):
            clauses = cut(sentence)
            for number, clause in enumerate(clauses, 1):
                self._clause(clause, marked and number == len(clauses))
        unread = "?" in self.text and not (self.asked or self.general or self.suggests or self.statements)
        asks = tuple(dict.fromkeys(self.asked)), frozenset(self.suggested), frozenset(self.labels)
        return Reading(*asks, self.general, self.suggests, tuple(self.statements), malformed, unread)

    def _clause(self, raw: str, marked: bool) -> None:
        clause = acts.opened(text := words(raw))
        if not clause:
            self.asking = self.asking or "question" in text
            return
        act, pairs = self._act(text, clause, marked)
        if act in ("ask", "name"):
            self.labels.add(("pair" if act == "ask" else "check") if pairs else acts.kind_of(clause))
            self.suggested.update(pairs if act == "name" else ())
            self.general = self.general or not pairs
            self.asked += pairs
            self.last = pairs or self.last
        elif act in ("propose", "none"):
            self.suggests = self.suggests or act == "propose"
            self.statements += stated_values(raw)
        else:  # a kind of question without pairs
            self.labels.add(act)
            self.suggests, self.general = self.suggests or act == "check", self.general or act != "check"
        self.asking = act == "ask"
        self.said.append(text)
        if NAME.search(text):
            named = pairs or list(named_pairs(text))
            self.mentioned = named or (self._filled(text) if has("name_said", text) else [])
            self.names_nobody = False

    def _act(self, text: str, clause: str, marked: bool) -> tuple[acts.Act, list[Pair]]:
        """Returns what a clause does, and the pairs that it names in doing so."""
        pairs, names = list(named_pairs(clause)), NAME.search(clause) is not None
        if names and has("corrects", text) and (self.last or self.follows) and not has("states", clause):
            self.asked = [pair for pair in self.asked if pair not in self.last]
            return "ask", pairs or self._filled(clause)
        if names and is_bare(clause):
            return self._bare(text, clause, marked, pairs)
        about = names and begins("about", clause) and not begins("suggest", clause)
        act = "ask" if about else acts.act_of(text, clause, marked)
        if act == "ask" and not (marked or begins("question", clause)) and has("states", clause):
            act = "none"
        if act != "ask":
            return act, pairs
        if about and pairs and not has("value_words", clause):
            return "name", pairs
        return "ask", pairs or self._left_out(clause, names)

    def _bare(self, text: str, clause: str, marked: bool, pairs: list[Pair]) -> tuple[acts.Act, list[Pair]]:
        """Names and nothing else: a question with its mark, where one is invited, and after a question that they continue."""
        # "Ava on BLEU, please", "your score for Ava on BLEU"
        by_noun = has("noun_asks", text) and not text.startswith("thank")
        continues = self.asking or self.invited or by_noun
        if not (marked or continues):
            return "none", pairs
        chooses = " or " in text and any(map(NAME.search, self.said))
        if not pairs and (self.last or self.follows or chooses or self._complements(clause)):
            return "ask", self._filled(clause)
        return ("ask" if continues or not pairs else "name"), pairs

    def _left_out(self, clause: str, names: bool) -> list[Pair]:
        """Returns the pairs of a question with a name left out, unless it asks about a whole reviewer or paper."""
        chooses = len(self.mentioned) > 1 and not names and has("chooses", clause)
        if (has("whole", clause) and not chooses) or without_excluded(clause) != clause:
            return []
        if names:
            continues = (self.last or self.mentioned) and begins("ellipsis", clause)
            follows = continues or (self.names_nobody and self.answered) or self._complements(clause)
            return self._filled(clause) if follows or has("name_said", clause) else []
        if has("person", clause) and has("place", clause):
            return self._filled(clause)
        mentioned = self._mentioned_before() if self.names_nobody else self.mentioned
        points = "pair_said" if len(mentioned) == 1 else "pairs_said"
        return mentioned if has(points, clause) else []

    def _mentioned_before(self) -> list[Pair]:
        """Returns the pairs of the last earlier message that names somebody."""
        for at in range(len(self.said) - 1, -1, -1):
            if NAME.search(self.said[at]):
                return list(named_pairs(self.said[at], " . ".join(self.said[:at])))
        return []

    def _complements(self, clause: str) -> bool:
        """Returns True if the words just before name one side only, and the clause the other one."""
        side = 0 if by_side(clause)[1] else 1
        before = by_side(self.said[-1] if self.said else "")
        return bool(before[side]) and not before[1 - side]

    def _filled(self, clause: str) -> list[Pair]:
        """Returns the pairs of a clause, completed by the names that stood last."""
        return list(named_pairs(clause, " . ".join(self.said[-CLAUSES_BACK:])))


def cut(sentence: str) -> list[str]:
    """Returns the clauses of a sentence.

    "For R0 on P0, what do you have" stays whole, and so does "between R0 and R1, who is better on P0"; "R0 on P0, who is left for P1" does not.
    """
    cuts = [match.end() for match in PATTERNS["cut"].finditer(sentence)]
    out: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        part = sentence[start:end].strip(" ,;:")
        values = out and sentence[:start].rstrip().endswith(";") and _NUMBER.search(out[-1]) and _NUMBER.search(part)
        if values or (out and part and _continues(out[-1], part)):
            out[-1] += f"{'; ' if values else ', '}{part}"
        elif part:
            out.append(part)
    return out


def _continues(before: str, part: str) -> bool:
    """Returns True if a part asks about what stands before it, and names only that."""
    point = acts.opened(words(part))
    another = point.startswith("who") and NAME.search(part) is not None and all(by_side(before))
    return (
        is_bare(before.removeprefix("between "))
        and not another
        and not begins("own", point)
        and not has("corrects", part)
    )


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
