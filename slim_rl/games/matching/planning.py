"""The matching game for one: what both players see is shown to the policy, which proposes once. No dialogue, no partner.

It asks how well a policy plans when there is nothing left to ask, and is verl's single-turn mode (docs/verl.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from slim_rl.games.matching.actions import Action, ActionError, parse_action
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.instance import UNSEEN_VALUE
from slim_rl.games.matching.prompt import table_lines


class PlanningEnv(MatchingEnv):
    """Plays the games of the matching game's files. An action is `[propose]` and a whole plan; a valid one ends the game.

    Args:
        max_errors: unreadable answers in a row that end the game with reward 0.
    """

    seats = 1
    tags: ClassVar[
        tuple[str, ...]
    ] = ()  # nobody is there to hear a message: a line without a tag is refused as it stands

    def __init__(self, max_errors: int = 3) -> None:
        super().__init__(max_turns=1, max_errors=max_errors)

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": 0, "action": None, "error": None}
        if self.end is not None:
            return "The game is over.", True, info | {"error": "The game is over.", "end": self.end}
        action = parse_action(text, self.game.roster)
        if isinstance(action, Action) and action.assignment is not None:
            self.accepted, self.end = action.assignment, "finished"
            info["action"] = {"kind": action.kind, "text": action.text, "assignment": list(action.assignment)}
            return "The plan is taken.", True, info | {"end": self.end}
        info["error"] = action.message if isinstance(action, ActionError) else "Answer with [propose] and a whole plan."
        self.errors += 1
        if self.errors >= self.max_errors:
            self.end = info["end"] = "errors"
        return f"Error: {info['error']}", self.end is not None, info

    def get_prompt_prefix(self, seat: int = 0) -> str:
        roster = self.game.roster
        paper, reviewer = roster.short_papers[0], roster.reviewers[0]
        return (
            f"Assign {roster.n} papers to {roster.n} reviewers, one each, for the highest total score. Scores go from 0 to 99; "
            f"? is a score nobody knows and counts {UNSEEN_VALUE}. Answer with the whole plan, one line for every paper:\n"
            f"[propose]\n{paper}: {reviewer}\n(and so on)"
        )

    def get_state_description(self, seat: int = 0) -> str:
        game = self.game
        pooled = [
            [score if first or second else None for score, first, second in zip(*row, strict=True)]
            for row in zip(game.table, game.mask1, game.mask2, strict=True)
        ]
        return "\n".join(("The scores:", *table_lines(game.roster, pooled)))
