"""A partner goes by a short name once its game names it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from slim_rl.analysis.load import load
from slim_rl.config import parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.worker import RolloutWorker
from tests.stories.games import GAME, Asks


def test_a_partner_is_played_and_logged_by_its_short_name(tokenizer: Any, tmp_path: Path) -> None:
    chat = Chat(tokenizer)
    config = parse_config(
        {
            "environment": GAME,
            "game": {"n": 3},
            "partner": {"kind": "rude"},
            "data": {"train": str(tmp_path / "games.jsonl"), "num_train": 1},
            "limits": {"turn_tokens": 128},
        }
    )
    worker = RolloutWorker(config, chat, Asks(chat))
    (dialogue,) = asyncio.run(worker.play(worker.spec(load_rows(config)[0], "story")))
    with DialogueLog(tmp_path / "log" / "log.jsonl") as log:
        log.append(dialogue)
    (row,) = load([tmp_path / "log"]).frame.itertuples()
    assert dialogue.partner["kind"] == row.partner == row.arm == "rude" and row.questions == 1
