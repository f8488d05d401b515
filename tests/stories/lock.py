"""A game for two by itself: open a lock with four positions, of which the keeper knows the right one."""

from collections.abc import Mapping
from typing import Any, ClassVar

from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Turn
from slim_rl.environment import BaseEnvironment, View
from slim_rl.measured import Instrument

ASKED = {"odd": "parity", "high": "half"}  # a word of a question -> its kind


class Lock(BaseEnvironment):
    """The opener (seat 0) asks what it likes, then says a position from 1 to 4, once."""

    seats = 2
    partners: ClassVar[Mapping[str, str]] = {"keeper": f"{__name__}.Keeper"}
    instrument = f"{__name__}.Ear"

    @classmethod
    def sample_state(cls, seed: int) -> dict[str, Any]:
        return {"position": 1 + seed % 4}

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        self.turn, self.position, self.tried = 0, game_state["position"], 0
        return self.get_state_description(), {}

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        info: dict[str, Any] = {"seat": self.turn, "action": {"kind": "says"}, "error": None}
        if self.turn == 0 and text in "1234":
            self.tried = int(text)
            return "Over.", True, info | {"end": "finished"}
        self.turn = 1 - self.turn
        return text, False, info

    def get_normalized_reward(self) -> float:
        return float(self.tried == self.position)

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return "A lock has the positions 1 2 3 4. The opener asks the keeper, then says a position."

    def get_state_description(self, seat: int = 0) -> str:
        return "Open it." if seat == 0 else f"It opens at {self.position}."

    def get_private_view(self, seat: int) -> int | None:
        return self.position if seat == 1 else None


class Ear(Instrument):
    question_kinds: ClassVar[Mapping[str, str]] = {"parity": "odd or even", "half": "high or low"}

    def annotate(self, dialogue: Any) -> None:
        for turn in dialogue.turns:
            turn.questions = [kind for word, kind in ASKED.items() if word in turn.text and turn.text.endswith("?")]
            turn.seeking = bool(turn.questions)
        dialogue.columns["position"] = dialogue.game_state["position"]
        dialogue.columns["side"] = "high" if dialogue.game_state["position"] > 2 else "low"

    def viewer_board(self, game_state: Any, seat: int) -> dict[str, Any]:
        return {"text": f"It opens at {game_state['position']}."}


class Keeper(Partner):
    """Answers yes or no."""

    identity: ClassVar[dict[str, Any]] = {"kind": "keeper"}

    async def act(self, view: View) -> Turn:
        truth = view.private % 2 if "odd" in view.observation else view.private > 2
        return Turn("yes" if truth else "no")


class Naysayer(Keeper):
    """Answers no."""

    async def act(self, view: View) -> Turn:
        return Turn("no")
