"""The same words said through an adapter and to the rollout worker: what both must agree on."""

from collections.abc import Iterable
from typing import Any, ClassVar

from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.players import Partner, PartnerFailure, Player
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import View
from slim_rl.session import Games

SMALL = {"game": {"n": 2, "scales": False, "hardness": 0, "max_turns": 6, "max_errors": 2}, "seed": 5}
ASK = "[message] What do you have for Ava Li on BLEU?"
PROPOSE = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen"
OTHER = "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li"
WRONG = "I would rather not say."
WORDS = [[ASK, PROPOSE, OTHER, ASK, ASK, ASK], [WRONG, ASK, WRONG, WRONG]]  # each ends a game
ACTIONS = (ASK, PROPOSE, OTHER, WRONG, "[accept]", "[reject]", "[message] Hm.", "")


class Recites(Partner):
    """A player of the policy's seat by text alone, who says these words one after another."""

    identity: ClassVar[dict[str, Any]] = {"kind": "recites"}

    def __init__(self, words: Iterable[str]) -> None:
        self.words = iter(words)

    async def act(self, view: View) -> Turn:
        said, thought = split_thought(next(self.words))
        return Turn(said, thought=thought)


class Fails(Partner):
    """A partner that does not answer."""

    identity: ClassVar[dict[str, Any]] = {"kind": "fails"}

    async def act(self, view: View) -> Turn:
        raise PartnerFailure("no answer")


FAILING = SMALL | {"partner": {"kind": f"{__name__}.Fails", "args": {}}}


async def by_worker(
    games: Games, row: GameRow, words: Iterable[str], number: int = 0, policy: Player | None = None
) -> Dialogue:
    """What `RolloutWorker` makes of these words."""
    episode = games.worker.spec(row, games.scope, number, phase="train")
    (dialogue,) = await games.worker.play(episode, policy=policy or Recites(words))
    return dialogue


def line(dialogue: Dialogue) -> dict[str, Any]:
    """A dialogue's log line, without what the clock and the policy's engine put into it."""
    annotate(dialogue)
    data = dialogue.to_dict(tokens=False)
    for key in ("policy", "seconds", "tokens"):
        del data[key]
    for turn in data["turns"]:
        del turn["seconds"], turn["span"]
        if turn["usage"]:
            turn["usage"]["retries"] = 0
    return data
