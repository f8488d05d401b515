"""Texts that the players read: the rules (a system prompt) and their scores (the first user message).

Kept short, since a small model reads them too; the names and numbers are those of the game at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import UNSEEN_VALUE, Assignment, GameState

Shown = Sequence[Sequence[float | None]]  # a table as a player is shown it; None where it is not

KNOWN = "What you know:"  # before the table that follows each observation with `show_known`
PLANNED = "*"  # with `show_known: plan`, behind the pairs of the best plan so far
BULLET = "- "  # before a reviewer in the prompt with short rules
RESPOND = "Answer with [accept] or [reject]."  # follows a proposal where its addressee reads it


def rules(game: GameState, max_turns: int, most: int | None, planner: str, show_known: bool | str) -> str:
    """Returns the rules, the same for both seats.

    Args:
        most: plans that each player may propose; None: any number.
        max_turns, planner, show_known: as in `MatchingSettings`.
    """
    roster = game.roster
    paper, reviewer = roster.short_papers[0], roster.reviewers[0]
    scaled = (
        " Your numbers are the true scores times a factor of your own; your partner's factor is another, so the two "
        "tables are on different scales."
        if has_scales(game)
        else ""
    )
    stars = f" {PLANNED} marks the pairs of the best plan by what you know so far." if show_known == "plan" else ""
    bound = ""
    if most is not None:
        plans, last = ("one plan", "it") if most == 1 else (f"{most} plans", "the last of them")
        bound = f"Each of you may propose {plans}; if {last} is rejected, the game ends and scores 0. "
    plan = f"{paper}: {reviewer}\n(and so on, one line for every paper)"
    if planner == "solver":
        plan = "(no more than that: the plan is worked out for you, the best one by what you see and were told)"
    return (
        f"You and a partner assign {roster.n} papers to {roster.n} reviewers, one each, for the highest total score. "
        f"Each of you sees only some scores; ? is a score you do not see. True scores go from 0 to 99, and one that "
        f"neither of you sees counts {UNSEEN_VALUE}.{scaled}{stars}\n"
        "You take turns. Each turn is one action, begun with its tag:\n"
        f"[message] {reviewer} is strong on {paper}.\n"
        f"[propose]\n{plan}\n"
        "[accept]\n"
        "[reject]\n"
        f"A proposal must be answered with [accept] or [reject]. [accept] ends the game. {bound}"
        f"No agreement within {max_turns} turns scores 0."
    )


def short_rules(solver: bool = False) -> str:
    """Returns the aim of the game and what the policy can do, in about 40 tokens.

    Args:
        solver: `[propose]` alone is a whole plan.
    """
    plan = "the best plan you know." if solver else "a plan: a line for every paper, with its reviewer."
    return (
        "Assign papers to reviewers for the highest total score.\n"
        "[message] asks your partner for a score that you do not see (?).\n"
        f"[propose] proposes {plan}"
    )


def state_description(roster: Roster, seat: int, shown: Shown, plan: Assignment | None = None, bullet: str = "") -> str:
    """Returns the scores of `seat`: one line per reviewer, begun with `bullet`, with the pairs of `plan` marked.

    After a bullet a name has a space before it, as within a sentence, so that its tokens are those that a question about it needs. A
    pretrained model copies them more exactly: Qwen2.5-Coder-0.5B, shown three questions, gave 95% of its probability to reviewers on the
    board, and 61% without bullets.
    """
    lines = [bullet + line for line in table_lines(roster, shown, plan)]
    return "\n".join(("Your scores:", *lines, "You speak first." if seat == 0 else "Your partner speaks first."))


def table_lines(
    roster: Roster, values: Sequence[Sequence[float | str | None]], plan: Assignment | None = None
) -> list[str]:
    """Formats scores, one line per reviewer; "?" for None, words as they are, and `PLANNED` behind the pairs of `plan`."""
    marked = frozenset(enumerate(plan or ()))
    return [
        f"{reviewer}: "
        + ", ".join(
            f"{paper} {_cell(value)}{PLANNED if (r, p) in marked else ''}"
            for p, (paper, value) in enumerate(zip(roster.short_papers, row, strict=True))
        )
        for r, (reviewer, row) in enumerate(zip(roster.reviewers, values, strict=True))
    ]


def _cell(value: float | str | None) -> str:
    return value if isinstance(value, str) else "?" if value is None else f"{value:g}"


def has_scales(game: GameState) -> bool:
    return game.scale1 != game.scale2
