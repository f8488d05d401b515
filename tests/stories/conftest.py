"""A log of a run that learns to ask in a custom game."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.worker import RolloutWorker
from tests.dialogue.players import Says
from tests.stories.backends import STORY, after

GAMES, STEPS = 6, 3
GUESSES = "12"  # a position that no lock has


@pytest.fixture(scope="package")
def log_dir(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Held-out games before training, in which nothing is asked; three steps; held-out games after them."""
    folder = tmp_path_factory.mktemp("story")
    chat, config = Chat(tokenizer), STORY.config(folder)
    worker, rows = RolloutWorker(config, chat), load_rows(config)
    with DialogueLog(folder / "logs" / "train.jsonl") as log:
        for phase, step in (("eval", 0), *(("train", step) for step in range(STEPS)), ("eval", STEPS)):
            policy = Says((lambda view: after(view.received)) if phase == "train" or step else GUESSES)
            specs = [worker.spec(row, f"{phase}{step}", phase=phase, step=step) for row in rows]
            for (dialogue,) in asyncio.run(worker.play_all(specs, policy=lambda _, policy=policy: policy)):
                log.append(dialogue)
    return folder / "logs"
