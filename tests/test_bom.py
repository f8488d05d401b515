"""Files that an editor has begun with a byte order mark are read as those without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import OpenAIConfig, load_config
from slim_rl.dialogue.games_file import read_rows
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.study.recorded import read_recorded
from slim_rl.lab.experiment.page import _by_hand
from slim_rl.partners.openai_chat import read_prompt

BOM = b"\xef\xbb\xbf"
BOARD: dict[str, Any] = {"table": [[9, 1], [1, 9]], "mask1": [[1, 1], [1, 1]], "mask2": [[1, 1], [1, 1]]}
SAID = {"type": "message", "player": 0, "message": {"data": "Hello."}}

READERS = {
    "games": (
        json.dumps(BOARD) + "\n" + json.dumps({**BOARD, "seat": 1}),
        lambda path: len(read_rows(path, MatchingEnv())),
    ),
    "recorded games": (json.dumps({**BOARD, "action_log": [SAID]}), lambda path: len(list(read_recorded(path)))),
    "config": ("slim_rl:\n  name: mine\n", lambda path: load_config(path).name),
    "prompt": ("<!-- version: 3 -->\nBe shy.", lambda path: read_prompt(OpenAIConfig(prompt=path), None)),
    "text of a page": ("What it shows.", lambda path: _by_hand(path)),
}


@pytest.mark.parametrize("kind", READERS)
def test_byte_order_mark_changes_nothing(tmp_path: Path, kind: str) -> None:
    content, read = READERS[kind]
    (tmp_path / "plain").write_bytes(content.encode())
    (tmp_path / "marked").write_bytes(BOM + content.encode())
    assert read(tmp_path / "marked") == read(tmp_path / "plain")
    assert read(tmp_path / "plain")
