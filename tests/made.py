"""A small matching game, and dialogues about another (`make_dialogue`)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.loop import Game
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import as_dict
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState

# Seat 0 sees the diagonal; seat 1 sees Ava on Electra (90) and Daniel on BLEU (80). The best plan is worth 230.
STATE: dict[str, Any] = {
    "table": [[60, 90, 50], [80, 60, 50], [50, 50, 60]],
    "mask1": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "mask2": [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
    "scale1": 1.0,
    "scale2": 2.0,
    "best_assignment_reward": 230,
}

MakeDialogue = Callable[..., Dialogue]


async def play(
    env: Any, policy: Any, partner: Any, state: Any, chat: Any = None, limits: Limits | None = None, **origin: Any
) -> Dialogue:
    """The dialogue of a policy, by text unless there is a chat template, with a partner."""
    name = f"{type(env).__module__}.{type(env).__qualname__}"
    settings: dict[str, Any] = {"id": "d", "game_id": "", "seat": 0, "seed": 0, "environment": name}
    dialogue = Dialogue(game_state=as_dict(state), policy={}, partner={"kind": "none"}, **(settings | origin))
    await Game(env, [dialogue], policy, partner, chat, limits or Limits()).play()
    return dialogue


def played(*players: Any, **origin: Any) -> Dialogue:
    """The same, from a test that is not asynchronous."""
    return asyncio.run(play(*players, **origin))


@pytest.fixture
def make_dialogue() -> MakeDialogue:
    """make_dialogue(*texts, **fields): the seats speak in turn, policy first; a text that begins with ! was refused."""

    def make(*texts: str, **fields: Any) -> Dialogue:
        turns = []
        for number, text in enumerate(texts):
            refused, text = text.startswith("!"), text.removeprefix("!")
            kind = text.partition("]")[0].removeprefix("[")
            action = None if refused else {"kind": kind, "text": text.partition("]")[2].strip()}
            role = ("policy", "partner")[number % 2]
            turns.append(
                Turn(text, number % 2, role, action, "Begin with [message]." if refused else None, seconds=0.5)
            )
        settings: dict[str, Any] = {
            "id": "d0", "game_id": "g0", "seat": 0, "seed": 7, "game_state": STATE, "policy": {}, "partner": {},
        }  # fmt: skip
        settings |= {"reward": 1.0, "stop_reason": StopReason.AGREED, **fields}
        return Dialogue(turns=turns, **settings)

    return make


@pytest.fixture
def game() -> GameState:
    """A 3x3 game whose best plan is the diagonal, 270; seat 0 sees the first two rows and seat 1 the last two columns."""
    return GameState(
        table=((90, 10, 20), (30, 90, 40), (50, 60, 90)),
        mask1=((True,) * 3, (True,) * 3, (False,) * 3),
        mask2=((False, True, True),) * 3,
        scale1=2.5,
        scale2=1.5,
        best_assignment_reward=270,
        roster=Roster.default(3),
    )


def blank_figures(patch: pytest.MonkeyPatch) -> None:
    """Has figures drawn, and stand on the page blank: two thirds of a report's time go into setting and printing them."""
    blank = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>'
    patch.setattr("slim_rl.analysis.page.to_bytes", lambda figure, form: blank)
