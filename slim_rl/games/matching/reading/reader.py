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
from slim_rl.games.matching.roster import Pair, Roster

LOOK_BACK = 4  # messages before this one in which a name that is left out may have been said
CLAUSES_BACK = 20  # the same, in clauses

# A point's number, and a question mark spoken about
_MARK = re.compile(r"\(\s*(?:\d|[a-e])\s*\)(?=\s*\w)|\(\?\)|[\"']\?[\"']")
# What points back at a name, at one pair, and at several
_NAME_SAID = re.compile(
    r"\b(?:he|she|him|her|his|they|their|them|there|same|too|it|that one|those|these|both|each|either|(?:that|this) (?:paper|reviewer|one|person|pair))\b"
)
_PERSON, _PLACE = re.compile(r"\b(?:he|she|him|her|his)\b"), re.compile(r"\b(?:there|it|that paper|this paper)\b")
_PAIR_SAID = re.compile(
    r"\b(?:it|that|this|there|yours|him|her|(?:the|your|a|his|her|its|that|what) (?:score|value|number|rating|figure)|(?:do|can|have|could|would|don't) you(?: \w+)?$"
    r"|tell me$|anything$|and you$|^you$|about you$|what do you have$|your (?:side|table|end))\b|^(?:score|value|number)$|^how (?:much|high|strong|good|well)\b"
)
_PAIRS_SAID = re.compile(
    r"\b(?:them|these|those|they|each|both|their|scores|values|numbers|either|which|who|following)\b"
)
_CHOOSES = re.compile(r"^(?:who|which)\b|\bof (?:them|the two|these|those)\b")
_ELLIPSIS = re.compile(r"^(?:what|how)(?:'s| is| are| about)? (?:[RP]\d+(?:'s| and| or| ,)? ?)+$")  # "what about R3"
_ABOUT = re.compile(r"(?:how|what) about (?=[RP]\d|the|that|him|her)")
_CORRECTS = re.compile(
    r"\b(?:i mean|i meant|make (?:that|it)|correction|i wanted|scratch that|sorry|oops|my mistake)\b"
)
_INVITES = re.compile(
    r"\b(?:ask me|which (?:\w+ )?(?:reviewer|paper|pair)|name a (?:reviewer|pair)|(?:like|want) to know|interests? you|ask (?:for|about))\b"
)
_ANSWERS = re.compile(r"(?<![RP\d])\d|\b(?:no score|nothing|unknown|don't|can't|cannot)\b")
_NUMBER = re.compile(r"(?<![RP\d_])\d")
# Where a new clause begins within a sentence
_CUT = re.compile(
    rf";\s*|(?:[,:()\u2013\u2014]|\s-+\s|\b(?:and|but|or|while|otherwise)\b)\s*(?={acts.FILLER.pattern}(?:{acts.QUESTION.pattern}"
    rf"|(?:{acts.TERMS['tell']}) (?:me|us)\b|(?:please|kindly) |yours?\b|(?:i|i'm|i've|i'll|i'd|we|we're|we'll|my|mine|you|he|she|it|that's|let's) \w|you\W*$"
    r"|sorry\b|no ?[,:] ))|(?<!know )(?<!what )(?<!wonder )(?<!wondering )(?<!me )(?<!see )(?<!sure )(?<!it )(?<!idea )"
    r"\b(?=(?:if|unless|because|since|although|given that)\b(?! (?:you|i) (?:could|can|would|might|may)\b))"
)
# What nobody writes by choice: a word or a group of them twice in a row, two prepositions before a name, a name next to itself, pairs of
# names with nothing between them, control tokens of a chat template, three empty lines. People do write "no no" and "very very good".
_TWICE = re.compile(r"(?<![\w'])([^\W_]+(?:'\w+)?(?: [^\W_]+(?:'\w+)?){0,2}):? \1(?![\w'])")
_MAY_REPEAT = frozenset(
    """
    a blah bye cool far go ha had haha he hello hey hi hm just lol long many more much no not now oh okay please pretty
    really so super sure thanks that very wait way well yes
    """.split()  # noqa: SIM905
)
_GARBLED = re.compile(
    r"\b(?:on|for|at)(?: the)? (?:on|for|at)(?: the)? [RP]\d|\b([RP]\d+) (?:(?:on|for|at|the|is) )+\1\b|\bR\d+ P\d+ R\d+ P\d|\bP\d+ R\d+ P\d+ R\d"
)
_CONTROL = re.compile(r"<\|\w+\|>|</?(?:s|bos|eos)>|\n{4}")


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
    malformed = twice or _CONTROL.search(rest) is not None or _GARBLED.search(masked) is not None
    return _Reader(_MARK.sub("", masked), spoken).reading(malformed)


def _says_twice(text: str) -> bool:
    return any(match[1] not in _MAY_REPEAT for match in _TWICE.finditer(text))


class _Reader:
    """State while one message is read, clause by clause."""

    def __init__(self, text: str, spoken: list[str]) -> None:
        self.text = text
        self.said = spoken  # the messages before, and then this one's clauses so far
        heard = spoken[-1] if spoken else ""
        own = spoken[-2] if len(spoken) > 1 else ""
        self.invited = _INVITES.search(heard) is not None  # the other player asked which pair it wants to know
        self.answered = all(by_side(heard)) and _ANSWERS.search(heard) is not None
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
            self.mentioned = named or (self._filled(text) if _NAME_SAID.search(text) else [])
            self.names_nobody = False

    def _act(self, text: str, clause: str, marked: bool) -> tuple[acts.Act, list[Pair]]:
        """Returns what a clause does, and the pairs that it names in doing so."""
        pairs, names = list(named_pairs(clause)), NAME.search(clause) is not None
        if names and _CORRECTS.search(text) and (self.last or self.follows):
            self.asked = [pair for pair in self.asked if pair not in self.last]
            return "ask", pairs or self._filled(clause)
        if names and is_bare(clause):
            return self._bare(text, clause, marked, pairs)
        about = names and _ABOUT.match(clause) is not None and not acts.suggests(clause)
        act = "ask" if about else acts.act_of(text, clause, marked)
        if act == "none" and self.invited and names and not _NUMBER.search(clause):
            return "ask", pairs or self._filled(clause)
        if act != "ask":
            return act, pairs
        if about and pairs and not acts.speaks_of_scores(clause):
            return "name", pairs
        return "ask", pairs or self._left_out(clause, names)

    def _bare(self, text: str, clause: str, marked: bool, pairs: list[Pair]) -> tuple[acts.Act, list[Pair]]:
        """Names and nothing else: a question with its mark, where one is invited, and after a question that they continue."""
        continues = self.asking or self.invited or acts.asks_by_noun(text)
        if not (marked or continues):
            return "none", pairs
        chooses = " or " in text and any(map(NAME.search, self.said))
        if not pairs and (self.last or self.follows or chooses or self._complements(clause)):
            return "ask", self._filled(clause)
        return ("ask" if continues or not pairs else "name"), pairs

    def _left_out(self, clause: str, names: bool) -> list[Pair]:
        """Returns the pairs of a question with a name left out, unless it asks about a whole reviewer or paper."""
        chooses = len(self.mentioned) > 1 and not names and _CHOOSES.search(clause) is not None
        if (acts.WHOLE.search(clause) and not chooses) or without_excluded(clause) != clause:
            return []
        if names:
            continues = (self.last or self.mentioned) and _ELLIPSIS.match(clause)
            follows = continues or (self.names_nobody and self.answered) or self._complements(clause)
            return self._filled(clause) if follows or _NAME_SAID.search(clause) else []
        if _PERSON.search(clause) and _PLACE.search(clause):
            return self._filled(clause)
        mentioned = self._mentioned_before() if self.names_nobody else self.mentioned
        points = _PAIR_SAID if len(mentioned) == 1 else _PAIRS_SAID
        return mentioned if points.search(clause) else []

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
    cuts = [match.end() for match in _CUT.finditer(sentence)]
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
        and not acts.is_own(point)
        and not _CORRECTS.search(part)
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
