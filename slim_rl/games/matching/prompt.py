"""Texts that the players read: the rules (a system prompt, in `prompts/`) and their scores (the first user message).

Kept short, since a small model reads them too; the names and numbers are those of the game at hand.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import UNSEEN_VALUE, Assignment, GameState

Shown = Sequence[Sequence[float | None]]  # a table as a player is shown it; None where it is not

KNOWN = "What you know:"  # before the table that follows each observation with `show_known`
PLANNED = "*"  # with `show_known: plan`, behind the pairs of the best plan so far
BULLET = "- "  # before a reviewer in the prompt with short rules
RESPOND = "Answer with [accept] or [reject]."  # follows a proposal where its addressee reads it


def rules(name: str, env: Any) -> str:
    """Returns the rules in prompts/NAME.txt, filled in for the game of a `MatchingEnv`.

    Args:
        name: full, short (the aim of the game and what the policy can do, in about 40 tokens) or planning (the game for one).
    """
    facts = {"roster": env.game.roster, "scaled": has_scales(env.game), "unseen": UNSEEN_VALUE}
    return str(_prompts().get_template(f"{name}.txt").render(env=env, **facts))


@cache
def _prompts() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # which settings alone do not need

    return Environment(loader=PackageLoader(__package__, "prompts"), undefined=StrictUndefined, auto_reload=False)


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
