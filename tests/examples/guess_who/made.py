"""A board that a test can think through, and dialogues on it.

     glasses  hat  beard
Mara    x      x
Kira    x           (long hair)
Yuri                 x
Rosa                    (long hair)
"""

from __future__ import annotations

import asyncio
from typing import Any

from examples.guess_who import GuessWhoEnv
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from tests.dialogue.players import Script

GAME = "examples.guess_who.GuessWhoEnv"
STATE: dict[str, Any] = {
    "characters": {
        "Mara": ["glasses", "hat"],
        "Kira": ["glasses", "long hair"],
        "Yuri": ["beard"],
        "Rosa": ["long hair"],
    },
    "secret": "Kira",
    "max_questions": 3,
}


def config(partner: str = "shy", **settings: Any) -> Config:
    return parse_config({"environment": GAME, "partner": {"kind": partner}, **settings})


def play(tokenizer: Any, turns: list[str], partner: str = "shy", **settings: Any) -> Dialogue:
    """The annotated dialogue of a policy that says these turns."""
    chat = Chat(tokenizer)
    worker = RolloutWorker(config(partner, **settings), chat, Script(chat, turns))
    row = GameRow.of(GuessWhoEnv(), "g", STATE, 0)
    (dialogue,) = asyncio.run(worker.play(worker.spec(row, "test")))
    annotate(dialogue)
    return dialogue
