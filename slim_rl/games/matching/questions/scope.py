"""What a question is about: its label, and the reviewer-paper pairs it names, once the wording has told its kind.

A pair is asked about only if both its names are in the question, or one of them is and a pronoun or an omission points to the
other, named shortly before. Names after "besides", "other than" and similar words are not asked about.
"""

from __future__ import annotations

import re

from slim_rl.games.matching.questions.rules import KINDS
from slim_rl.games.matching.reading.masking import NAME
from slim_rl.games.matching.reading.pairing import by_side, named_pairs, without_excluded
from slim_rl.games.matching.reading.patterns import pattern
from slim_rl.games.matching.roster import Pair

_OUTDONE = re.compile(r"\bthan (?:(?:R\w+|and|or|,) ?)+")
# What the asker then says itself: "how is Ava on BLEU, I have 62 for Noah on SWAG".
_OWN_WORDS = re.compile(r" (?:[,-] (?:and |but )?(?:i|i'm|i've|my|mine|we|let's)|because|since) .*")
REVIEWER = re.compile(r"\bR\w+|\b(?:he|she|him|her|his|they|them|their)\b")
PAPER = re.compile(r"\bP\w+")
_THERE = pattern(r"""(?<!is )(?<!are )\b(?:there|(?:this|that|these|those) (?:pairs?|combinations?|cells?)|that one
    that paper|this paper|it|those|(?:any of|among) (?:them|these)|one of (?:them|these)|either of them)\b""")
_THAT_PAIR = re.compile(r"\b(?:this|that|these|those) (?:pairs?|combinations?|cells?)\b")
_WHOLE = pattern(r"""\b(?:who|where|anyone|someone|anywhere|any (?:other |good |better |decent )?(?:options?|reviewers?
    candidates?|papers?))\b""")
_BARE = pattern(r"""\b(?:unknown|blank|better than)\b
    ^(?:is|are) (?:R\w+|he|she|they) (?:an? )?(?:dark|light|medium|green|red|known)\b(?!.*\bany)""")
_ONE_CELL = pattern(r"""^(?:is|are|was) (?:it|that|they|he|she|R\w+)\b(?!.*\b(?:any|unknown|blank)\b)
    ^what (?:shade|score|colou?r)\b""")
_PLACED = re.compile(r" (?:for|on|at|in|to|onto|instead|being|as|with)\b")
_ABOUT_SCORES = re.compile(r"about (?:the |your |any )?(?:information|scores?|values?|numbers|data)\b")
_OF_WHOM = re.compile(r"^[^,]* (?:about|of|on) R\w+$")
_SOCIAL = re.compile(r"\bhow(?:'s it| are you|'s everything| is it)\b")
# "For Ava, what ...", "Ava on BLEU: what ...": what the question is about stands before it.
_TOPIC = pattern(r"""(?:^|[ ,:])(?:for|on|about|regarding|concerning) (?:(?:[RP]\w+|and|or|on|for|at|,) ?)+[,:-] $
    (?:^|\. )(?:(?:and|also|or|so|okay|then) )?R\w+ (?:on|for|at|and) P\w+ [,:-] $
    (?:^|\. )(?:(?:and|also|or|so|okay|then) )?(?:(?:[RP]\w+|and|or|,) ?)+[:-] $""")
# "With Ava on BLEU, what ...": what is settled already.
_SETTLED = pattern(r"(?:^|[,.] )(?:so |okay |and )?with (?:(?:[RP]\w+|and|or|on|for|at|,) ?)+[,:-] $")
# "Ethan or Joseph?": a choice that leaves out what it is for.
_CHOICE = re.compile(r"^(?:R\w+(?: ,)? )+or R\w+$|^(?:P\w+(?: ,)? )+or P\w+$")
_EITHER = re.compile(r"\b(?:either|any|both|one) of (?:them|these|those)\b|\beither$")
# "Which paper?", of which the partner just spoke.
_WHAT_WAS_SAID = re.compile(r"^(?:which|what) (paper|reviewer|person|pair|one|plan|proposal|swap)$")
# "I don't know about LLaMA, could Ava do it?" asks for information; without the first half it suggests.
_IGNORANT = pattern(r"""\b(?:(?:don't|do not|didn't|can't|cannot|can not|couldn't|haven't) (?:\w+ ){0,2}?(?:know|see
    have|tell|got)|not sure|unsure|no (?:idea|clue|information|scores?|data|values?)|nothing (?:for|on|about)|blank
    unknown)\b""")
_DOES_IT = pattern(r"""^(?:can|could|would|will|might|may) (?:R\w+|he|she|they)\b[^,]* (?:do|take|handle|review|for
    on) (?:it|that|this)$""")
_PLAN = pattern(r"""\b(?:plan|propos\w+|suggest\w*|let's|we (?:should|could)|(?:i |i'd )(?:vote|prefer)|(?:i would|i'd
    i'll|i will|i want to|going to|thinking of|think of) (?:\w+ )?(?:put\w*|go\w*|pick\w*|choos\w+|tak\w+|plac\w+|giv\w+
    assign\w*|keep\w*|us\w+|hav\w+|mov\w+))\b""")
# Words that told a score, or that there is none.
_SCORED = re.compile(r"(?<![RP\d])\d+|\b(?:no|not|don't|cannot|can't)\b")
_HIS = re.compile(r"^(?:what|how) (?:does|do|would|did) (?:he|she) (?:get|score|compare|fare)\b")
PRONOUN = re.compile(r"\b(?:he|she|him|her|his|they|them|their)\b")
_YOU = pattern(r"""^(?:(?:what|how) about )?(?:and )?you$|(?<!what's )(?<!are )(?<!is )\byours$|^(?:do|can) you$
    your (?:end|side|own)$""")


def settle(kind: str, text: str, before: str, previous: str) -> tuple[str, tuple[Pair, ...]]:
    """The label and the pairs of one question.

    Args:
        kind: from `rules.kind_at`.
        text: the clause from the question's first word on.
        before: what the message says before it.
        previous: the partner's message before, read as clauses.
    """
    last = _last_clause(before) or _last_clause(previous)
    if kind == "check" and _DOES_IT.search(text) and _IGNORANT.search(last) and PAPER.search(last):
        return "pair", named_pairs(text, last)
    if (echoed := _WHAT_WAS_SAID.search(text)) and echoed[1] in previous.split():
        return "process", ()
    if kind in KINDS:
        return kind, ()
    kept = without_excluded(_OWN_WORDS.sub("", text))
    without = _OUTDONE.sub(" ", kept)
    if REVIEWER.search(without) is None:  # "anyone better than Sofia"; but "is Ava better than Sofia" is about both
        kept = without
    reviewer, paper = REVIEWER.search(kept) is not None, PAPER.search(kept) is not None
    if kind == "about" and not _ABOUT_SCORES.search(text):
        if " you" in text and not NAME.search(text):
            return _and_you(before, previous)
        if _CHOICE.search(text):
            return _completed(text, last)
        if "the rest" in text:
            return "open", ()
        if (
            _SCORED.search(previous)
            and (PRONOUN.search(text) or (paper and _PLACED.search(f" {text}")))
            and not all(by_side(text))
        ):
            return _completed(text, f"{previous} {before}")
        return ("check" if reviewer == paper or _PLACED.search(text) else "open"), ()
    if kind == "opinion":
        return ("open" if (paper and not reviewer and "that" not in text) or _OF_WHOM.search(text) else "check"), ()
    if _WHOLE.search(kept):
        return "open", ()
    topic = None if _SETTLED.search(before) else _TOPIC.search(before)
    if topic is not None:
        kept = f"{topic[0]} {kept}"
        reviewer, paper = REVIEWER.search(kept) is not None, PAPER.search(kept) is not None
    if kind == "which":
        return _which(text, kept, f"{previous} {before}")
    if reviewer and paper:
        return "pair", named_pairs(kept, f"{previous} {before}")
    if reviewer and _HIS.search(text) and PAPER.search(previous + before):
        return _completed(text, f"{previous} {before}")
    if kind == "state" or _BARE.search(kept):  # "unknown for SWAG?": the rest was named just before
        label, pairs = _completed(text, before if NAME.search(before) else previous)
        # "is it dark green?" is about one cell, even where it was named too long ago to tell which
        return ("pair" if _ONE_CELL.search(text) else label), pairs
    if _EITHER.search(kept) and not NAME.search(kept) and len(set(NAME.findall(last))) > 1 and not all(by_side(last)):
        return "open", ()
    if not paper and _THERE.search(kept):
        if reviewer and not PAPER.search(before):
            return _completed(kept, f"{previous} {before}")
        both = reviewer or "there" in kept or _THAT_PAIR.search(kept)
        return _completed(kept, before if all(by_side(before)) else f"{previous} {before}") if both else ("open", ())
    if not reviewer and not paper and _YOU.search(kept):
        return ("process", ()) if _SOCIAL.search(previous) else _and_you(before, previous)
    return "open", ()


def last_pair(before: str, previous: str) -> tuple[Pair, ...]:
    """The pair that was named last, if one was: in the message itself or else in the partner's last words."""
    last = _last_clause(before) or _last_clause(previous)
    if not (REVIEWER.search(last) and PAPER.search(last)):
        return ()
    pairs = named_pairs(last, f"{previous} {before.replace(last, '')}")
    return pairs if len(pairs) == 1 else ()


def _and_you(before: str, previous: str) -> tuple[str, tuple[Pair, ...]]:
    """ "What about you?", after "I have 40 for Ava on BLEU", "I would put Ava on BLEU" or "I don't have Ava"."""
    last = _last_clause(before)
    if _PLAN.search(last):
        return "check", ()
    if _IGNORANT.search(last) and not all(by_side(last)) and not _WHOLE.search(last):
        return _completed(last, f"{previous} {before}")
    return _completed("", before) if all(len(side) <= 1 for side in by_side(without_excluded(before))) else ("open", ())


def _which(text: str, kept: str, earlier: str) -> tuple[str, tuple[Pair, ...]]:
    """A choice between papers for a reviewer is about pairs; "which paper is best for him?" is not."""
    if not NAME.search(kept):
        return _completed("", earlier) if "prefer" in text else ("open", ())
    reviewers, papers = REVIEWER.findall(kept), PAPER.findall(kept)
    if reviewers and papers and len(reviewers) + len(papers) > 2:
        return "pair", named_pairs(kept, earlier)
    return "open", ()


def _completed(text: str, earlier: str) -> tuple[str, tuple[Pair, ...]]:
    """A question that names one side at most, with the other side as it was named last."""
    reviewer = REVIEWER.search(text) or REVIEWER.search(earlier)
    paper = PAPER.search(text) or PAPER.search(earlier)
    return ("pair", named_pairs(text, earlier)) if reviewer and paper else ("open", ())


def _last_clause(text: str) -> str:
    """The last clause that names somebody; empty if none does."""
    return next((clause for clause in reversed(text.split(" . ")) if NAME.search(clause)), "")
