"""Matching game for one: the policy sees what both players see, and proposes once. No dialogue, no partner.

It asks how well a policy plans when there is nothing left to ask, and is verl's single-turn mode (docs/how-to/verl.md).
"""

from typing import ClassVar

from slim_rl.games.matching.actions import Action, ActionError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.prompt import rules, table_lines


class PlanningEnv(MatchingEnv):
    """Single-player environment of the matching game. A full plan, as `[propose]`, ends it.

    Args:
        max_errors: unreadable answers in a row that end the game with reward 0.
    """

    seats = 1
    # There is no partner to hear a message: a line without a tag is refused as it stands.
    tags: ClassVar[tuple[str, ...]] = ()
    instrument = "slim_rl.games.matching.study.PlanningInstrument"

    def __init__(self, max_errors: int = 3) -> None:
        super().__init__(max_turns=1, max_errors=max_errors)

    def _read(self, text: str) -> Action | ActionError:
        action = super()._read(text)
        if isinstance(action, Action) and action.assignment is None:
            return ActionError("Answer with [propose] and a whole plan.")
        return action

    def _take(self, action: Action) -> str:
        self.accepted, self.end = action.assignment, "finished"
        return "The plan is taken."

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return rules("planning", self)

    def get_state_description(self, seat: int = 0) -> str:
        return "\n".join(("The scores:", *table_lines(self.game.roster, self.game.pooled())))
