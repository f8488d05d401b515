"""Parser of players' actions, strict about meaning and lenient about form. No text raises an exception.

An action is one tag, `[message]`, `[propose]`, `[accept]` or `[reject]`, and its text. A proposal names every paper and
every reviewer exactly once, in pairs, each pair within one line; how the pairs are written (bullets, HTML breaks,
order, separator, full or short names) does not matter. Words that are neither names nor form are refused.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slim_rl.formats import listed
from slim_rl.games.matching.roster import PLAN_WORDS, Roster
from slim_rl.games.matching.state import Assignment

ActionKind = Literal["message", "propose", "accept", "reject"]

KINDS: tuple[ActionKind, ...] = ("message", "propose", "accept", "reject")

TAG = re.compile(rf"\[\s*({'|'.join(KINDS)})\s*\]", re.IGNORECASE | re.ASCII)
_ANY_TAG = re.compile(r"\[\s*([A-Za-z_]+)\s*\]")
DECORATION = "*_`>#\"'“”- \t\r\n\v\f"  # what may stand around a leading tag: markdown, quotes
_BREAK = re.compile(r"<\s*br\s*(?:/\s*)?>|[\r\n\v\f\x85\u2028\u2029;]", re.IGNORECASE)
_LONG_CHARACTER = re.compile(r"&#(?=\d{8})")  # names no character, and takes long to find that out
_BRACKETED = re.compile(r"\([^()]*\)")
_WORD = re.compile(r"[^\W\d_]+")
_SEPARATOR = re.compile(r":|=|->|→|⇒|—|–|\s-\s|\|")


@dataclass(frozen=True, slots=True)
class Action:
    """A valid action. `text` is what follows the tag, as written; `assignment` is there for a proposal only."""

    kind: ActionKind
    text: str
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class ActionError:
    """Refused action; `message` explains to its author how to fix it."""

    message: str


def parse_action(
    text: str, roster: Roster, must_respond: bool = False, plan: Callable[[], Assignment] | None = None
) -> Action | ActionError:
    """Reads one action.

    Args:
        must_respond: a proposal is pending, so that only [accept] and [reject] are allowed.
        plan: gives the plan that `[propose]` alone means; None: it means none.
    """
    allowed = "[accept] or [reject]" if must_respond else "[message] or [propose]"
    tags = list(TAG.finditer(text))
    if not tags or text[: tags[0].start()].strip(DECORATION):
        wrong = _ANY_TAG.search(text)
        unknown = f"[{wrong[1][:20]}] is no tag. " if wrong and not tags else ""
        return ActionError(f"{unknown}Begin with a tag: {allowed}.")
    if len(tags) > 1:
        return ActionError(f"One action at a time: use a single tag, {allowed}.")
    kind = next(kind for kind in KINDS if kind == tags[0][1].lower())
    body = text[tags[0].end() :].lstrip("*_`\"'“”").strip()
    if must_respond and kind not in ("accept", "reject"):
        return ActionError("A proposal is waiting for your answer: reply with [accept] or [reject].")
    if not must_respond and kind in ("accept", "reject"):
        return ActionError(f"There is no proposal to {kind}: use [message] or [propose].")
    if kind == "message" and not body.strip(DECORATION):
        return ActionError("The message is empty: write something after [message].")
    if kind != "propose":
        return Action(kind, body)
    if plan is not None and is_bare_proposal(text):
        worked_out = plan()
        return Action(kind, format_proposal(worked_out, roster).partition("\n")[2], worked_out)
    assignment = parse_proposal(body, roster)
    return assignment if isinstance(assignment, ActionError) else Action(kind, body, assignment)


def is_bare_proposal(text: str) -> bool:
    """Returns True if a text is `[propose]` without a plan."""
    tag = TAG.match(text.lstrip(DECORATION))
    return tag is not None and tag[1].lower() == "propose" and not tag.string[tag.end() :].strip(DECORATION)


def parse_proposal(text: str, roster: Roster) -> Assignment | ActionError:
    """Reads the text of a proposal, its tag taken off."""
    plan: dict[int, int] = {}  # reviewer: paper
    for line in _BREAK.split(html.unescape(_LONG_CHARACTER.sub("&", text))):
        pairs = _parse_line(line, roster)
        if isinstance(pairs, ActionError):
            return pairs
        for reviewer, paper in pairs:
            if reviewer in plan:
                return ActionError(f"{roster.reviewers[reviewer]} is named twice: give each reviewer one paper.")
            if paper in plan.values():
                return ActionError(f"{roster.short_papers[paper]} is named twice: give each paper one reviewer.")
            plan[reviewer] = paper
    missing = [name for paper, name in enumerate(roster.short_papers) if paper not in plan.values()]
    if missing:
        return ActionError(
            f"The proposal lacks {listed(missing)}: write one line for each of the {roster.n} papers, like "
            f"'{roster.short_papers[0]}: {roster.reviewers[0]}'."
        )
    return tuple(plan[reviewer] for reviewer in range(roster.n))


def format_proposal(assignment: Sequence[int], roster: Roster) -> str:
    """Formats an assignment as a [propose] action: one line per paper, 'short title: full reviewer', in paper order."""
    reviewer_of = {paper: reviewer for reviewer, paper in enumerate(assignment)}
    lines = (f"{paper}: {roster.reviewers[reviewer_of[i]]}" for i, paper in enumerate(roster.short_papers))
    return "\n".join(("[propose]", *lines))


def _parse_line(line: str, roster: Roster) -> list[tuple[int, int]] | ActionError:
    """Returns the (reviewer, paper) pairs of one line; none if it names nobody and does not look like a pair."""
    line = _without_asides(line, roster)
    hits = list(roster.hits(line))
    rest = line
    for hit in reversed(hits):
        rest = f"{rest[: hit.start]} {rest[hit.end :]}"
    strange = [word for word in _WORD.findall(rest) if word.casefold() not in PLAN_WORDS]
    if not hits:
        sides = _SEPARATOR.split(line, maxsplit=1)
        if strange and len(sides) == 2 and all(_WORD.search(side) for side in sides):
            return _unknown(line, roster)
        return []
    named = []
    for hit in hits:
        written = line[hit.start : hit.end]
        meanings = roster.wholly(written, hit.meanings)
        if len(meanings) > 1:
            names = " or ".join(roster.name(*meaning) for meaning in meanings)
            return ActionError(f"'{written}' can mean {names}: write the whole name.")
        named.append(meanings[0])
    if strange:
        return _unknown(line, roster, strange[0])
    pairs = []
    for first, second in zip(named[::2], named[1::2], strict=False):
        if first[0] == second[0]:
            names = f"{roster.name(*first)} and {roster.name(*second)}"
            return ActionError(f"'{_short(line)}' pairs {names}: a line pairs one paper with one reviewer.")
        reviewer, paper = (first[1], second[1]) if first[0] == "reviewer" else (second[1], first[1])
        pairs.append((reviewer, paper))
    if len(named) % 2:
        kind = "reviewer" if named[-1][0] == "paper" else "paper"
        return ActionError(f"{roster.name(*named[-1])} has no {kind} in '{_short(line)}': write 'paper: reviewer'.")
    return pairs


def _without_asides(line: str, roster: Roster) -> str:
    """Removes the brackets without a name: "Ava Li (62)", but not the "(2002)" of a paper's title."""
    if "(" not in line:
        return line
    named = list(roster.hits(line))
    starts = [hit.start for hit in named]

    def kept(aside: re.Match[str]) -> str:
        before_its_end = bisect_left(starts, aside.end())
        return aside[0] if before_its_end and named[before_its_end - 1].end > aside.start() else " "

    return _BRACKETED.sub(kept, line)


def _unknown(line: str, roster: Roster, word: str = "") -> ActionError:
    what = f"'{word[:40]}' in '{_short(line)}'" if word else f"'{_short(line)}'"
    return ActionError(
        f"I do not understand {what}: write 'paper: reviewer' with these papers ({', '.join(roster.short_papers)}) "
        f"and reviewers ({', '.join(roster.reviewers)})."
    )


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= 60 else line[:57] + "..."
