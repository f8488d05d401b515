"""A game with a kind of question and its own partner, declared where the game is, and dialogues of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.policy import Sampled
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.scripted import ShyPartner
from tests.dialogue.made import STATE

ASKS = "[message] Please! What is Ava Li on BLEU?"
PLAN = "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel"


class Rude(ShyPartner):
    """A partner that says no more of itself than the one it is made from."""


class Courteous(MatchingEnv):
    """The matching game, in which a question may be polite too, and a partner rude."""

    partners: ClassVar[Mapping[str, str]] = {**MatchingEnv.partners, "rude": f"{__name__}.Rude"}
    question_kinds: ClassVar[Mapping[str, str]] = {**MatchingEnv.question_kinds, "polite": "says please"}

    @classmethod
    def annotate(cls, dialogue: Any) -> None:
        MatchingEnv.annotate(dialogue)
        for turn in dialogue.turns:
            if "please" in turn.text.lower() and turn.questions:
                turn.questions.append("polite")


GAME = f"{__name__}.Courteous"


def speak(text: str) -> str:
    """What the policy says to what it reads: it asks once, then proposes."""
    return ASKS if text.count("<|im_start|>assistant") == 1 else PLAN


class Asks:
    """The same as a policy, or what else it is to say."""

    identity: ClassVar[dict[str, Any]] = {"engine": "script"}

    def __init__(self, chat: Chat, says: Callable[[str], str] = speak) -> None:
        self.chat, self.says = chat, says

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        ids = self.chat.said_ids(self.says(self.chat.tokenizer.decode(input_ids)))
        return Sampled(ids, [-0.5] * len(ids), "stop")

    def reseed(self, seed: int) -> None:
        """It draws nothing."""


def played(number: int, phase: str, step: int, *, asks: bool, annotate: Callable[[Dialogue], None]) -> Dialogue:
    """An agreed dialogue of a small game."""
    said = [ASKS, "[message] Ava Li on BLEU: 60.", PLAN, "[accept]"] if asks else [PLAN, "[accept]"]
    turns = [
        Turn(text, place % 2, ("policy", "partner")[place % 2], {"kind": text[1:].partition("]")[0]})
        for place, text in enumerate(said)
    ]
    dialogue = Dialogue(
        f"{phase}-{step}-{number}",
        f"g{number}",
        0,
        number,
        STATE,
        {"model": "m"},
        {"kind": "shy"},
        environment=GAME,
        run="r0",
        arm="shy",
        step=step,
        phase=phase,
        turns=turns,
        reward=0.5 + 0.1 * (number % 3) + 0.1 * asks,
        stop_reason=StopReason.AGREED,
    )
    annotate(dialogue)
    return dialogue
