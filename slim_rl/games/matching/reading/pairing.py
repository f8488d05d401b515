"""Cells that a masked text names: which reviewer belongs to which paper, and which value to which pair.

Partners, annotator and audit all read cells here.

Names of one kind side by side share the other kind: "R0 or R2 for P6" is two pairs. A name of the kind that began a
group begins the next one: "R0 on P0 and P3, R7 on P7" is three pairs.
"""

import re
from itertools import pairwise

from slim_rl.games.matching.reading.masking import NAME
from slim_rl.games.matching.reading.wording import PATTERNS, has
from slim_rl.games.matching.roster import Pair

_Names = list[tuple[str, str]]

_BETWEEN = re.compile(r"[,;&+]|\b(?:and|or|then|vs|versus|but)\b")


def by_side(text: str) -> tuple[set[int], set[int]]:
    """Returns the reviewers and the papers that a text names, in whatever form."""
    sides: tuple[set[int], set[int]] = (set(), set())
    for kind, index in NAME.findall(text):
        sides[kind == "P"].add(int(index))
    return sides


def last_named(text: str, kind: str) -> str:
    """Returns the last names of a kind ("R" or "P") in a row."""
    run: list[str] = []
    for name in reversed(NAME.findall(text)):
        if name[0] == kind:
            run.append("".join(name))
        elif run:
            break
    return " ".join(reversed(run))


def named_pairs(text: str, earlier: str = "") -> tuple[Pair, ...]:
    """Returns the pairs that a clause names, in order, each once, without excluded names ("besides R0").

    If it names one side only, the other is the last one in `earlier`.
    """
    if earlier:
        text = f"{_left_out(text, earlier)} {text}"
    if "R" not in text or "P" not in text:
        return ()
    text = PATTERNS["compared"].sub(" ", PATTERNS["settled"].sub(" ", without_excluded(text)))
    text = PATTERNS["outdone"].sub(r"\1\2", text)
    groups: list[_Names] = [[]]
    for segment in _BETWEEN.split(text):
        names = NAME.findall(segment)
        if _both_kinds(names) and _both_kinds(groups[-1]):
            groups.append([])
        for name in names:
            if _both_kinds(groups[-1]) and name[0] == groups[-1][0][0]:
                groups.append([])
            groups[-1].append(name)
    if len(groups) > 1 and not _both_kinds(groups[-1]):  # "R0 on P0, or R7?"
        kind = groups[-1][0][0]
        groups[-1] += [name for name in groups[-2] if name[0] != kind]
    respectively = "respectively" in text
    return tuple(dict.fromkeys(pair for group in groups for pair in _product(group, respectively)))


def _left_out(text: str, earlier: str) -> str:
    """Returns the names of the side that a clause does not name."""
    reviewers, papers = by_side(text)
    last = "" if reviewers else last_named(earlier, "R")
    return last if papers else f"{last} {last_named(earlier, 'P')}"


def without_excluded(text: str) -> str:
    """Returns a clause without the names it excludes: "besides R0", "instead of P3"."""
    return PATTERNS["excluded"].sub(" ", text)


def _both_kinds(names: _Names) -> bool:
    return len({kind for kind, _ in names}) == 2


def _product(group: _Names, respectively: bool = False) -> list[Pair]:
    reviewers, papers = (list(dict.fromkeys(int(i) for kind, i in group if kind == side)) for side in "RP")
    if respectively and len(reviewers) == len(papers):
        return list(zip(reviewers, papers, strict=True))
    if group and group[0][0] == "P":
        return [(reviewer, paper) for paper in papers for reviewer in reviewers]
    return [(reviewer, paper) for reviewer in reviewers for paper in papers]


# A value has at most three digits (a displayed score is below 1000) and is neither a bound ("above 50") nor a share ("9/10").
NUMBER = re.compile(r"(?<![\w.#/])\d{1,3}(?:\.\d+)?(?![\w/%]|\.\d|\s*%)")
_TOKEN = re.compile(rf"(?P<name>[RP]\d+)|(?P<number>{NUMBER.pattern})")


def without_bounds(text: str) -> str:
    """Returns a text without the bounds of a score: "above 50", "between 40 and 60", "40-60"."""
    return PATTERNS["bounds"].sub(" ", text)


def stated_values(text: str) -> list[tuple[Pair, float]]:
    """Returns the values of a statement, in order; each belongs to the names next to it, or the last ones."""
    if "respectively" in text:
        return []
    text = without_bounds(text)
    if (pairs := _before_their_names(text)) is not None:
        return pairs
    out: list[tuple[Pair, float]] = []
    last: dict[str, int] = {}
    fresh = False  # both names are known, and one was said since the last value
    for segment in _BETWEEN.split(text):
        tokens = list(_TOKEN.finditer(segment))
        denied = has("nothing", segment)
        if sum(token["number"] is not None for token in tokens) == 1:  # it may come first: "62 for R0 on P0"
            tokens.sort(key=lambda token: token["number"] is not None)
        for token in tokens:
            if token["name"]:
                last[token["name"][0]] = int(token["name"][1:])
                fresh = len(last) == 2
            elif fresh and not denied:
                out.append(((last["R"], last["P"]), float(token["number"])))
                fresh = False
        fresh = fresh and not denied  # "no score for R0 on P0, so it counts as 50"
    return out


def _before_their_names(text: str) -> list[tuple[Pair, float]] | None:
    """Returns the values if each stands before its names, "62 (R0, P0), 40 (R0, P2)"; otherwise None."""
    tokens = list(_TOKEN.finditer(text))
    several = sum(token["number"] is not None for token in tokens) > 1
    if not several or tokens[0]["name"] or not tokens[-1]["name"] or has("nothing", text):
        return None
    out: list[tuple[Pair, float]] = []
    for value, after in pairwise([*(at for at, token in enumerate(tokens) if token["number"]), len(tokens)]):
        names = {token["name"][0]: int(token["name"][1:]) for token in tokens[value + 1 : after]}
        if len(names) < 2 or after - value > 3:
            return None
        out.append(((names["R"], names["P"]), float(tokens[value]["number"])))
    return out
