"""Files of any editor and tongue: a byte order mark, and characters that some readers take for the end of a line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slim_rl import jsonl
from slim_rl.analysis.load import load, read_dialogue
from slim_rl.config import OpenAIConfig, load_config
from slim_rl.dialogue.games_file import GameRow, read_rows, write_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.study.recorded import convert, read_recorded
from slim_rl.lab.experiment.page import _by_hand
from slim_rl.partners.openai_chat import read_prompt
from tests.games.matching.test_recorded import record
from tests.made import STATE, MakeDialogue

ODD = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \r"
SAID = (f"[message] What is{ODD}Ava Li on Electra?", f"[message] 1{ODD}80.")
READERS: list[tuple[str, Callable[[Path], Any]]] = [
    (json.dumps(STATE) + "\n" + json.dumps({**STATE, "seat": 1}), lambda path: len(read_rows(path, MatchingEnv()))),
    (json.dumps({**STATE, "action_log": []}), lambda path: len(list(read_recorded(path)))),
    ("slim_rl:\n  name: mine\n", lambda path: load_config(path).name),
    ("<!-- version: 3 -->\nBe shy.", lambda path: read_prompt(OpenAIConfig(prompt=path), None)),
    ("What it shows.", _by_hand),
]


def test_odd_line_ends_in_a_message_cut_no_line(make_dialogue: MakeDialogue, tmp_path: Path) -> None:
    path = tmp_path / "log" / "train.jsonl"
    with DialogueLog(path) as log:
        for step in range(3):
            log.append(make_dialogue(*SAID, run="a", arm="shy", phase="train", step=step))
    assert all(character.encode() in path.read_bytes() for character in "\u2028\u2029\x85")
    assert [[turn.text for turn in dialogue.turns] for dialogue in read_log(path)] == [list(SAID)] * 3
    found = load([path.parent])
    assert len(found.frame) == 3 and not found.warnings
    assert [turn["text"] for turn in read_dialogue(found, next(found.frame.itertuples()))["turns"]] == list(SAID)
    with DialogueLog(path, from_step=2):
        pass
    assert [dialogue.step for dialogue in read_log(path)] == [0, 1], "a resumed one keeps its earlier lines"
    rows = [GameRow.of(MatchingEnv(), f"g{ODD}", STATE), GameRow.of(MatchingEnv(), "h", STATE)]
    write_rows(rows, tmp_path / "games.jsonl")
    assert [row.game_id for row in read_rows(tmp_path / "games.jsonl")] == [f"g{ODD}", "h"]
    game = record(f"0 Ava{ODD}on BLEU?", "1 Nine.", "0 proposes 0 1 2", "1 accepts")
    for escaped in (True, False):
        (tmp_path / "recorded.jsonl").write_bytes((json.dumps(game, ensure_ascii=escaped) + "\n").encode() * 2)
        assert convert(tmp_path / "recorded.jsonl", tmp_path / "chat.jsonl") == 4
        assert len(list(jsonl.read(tmp_path / "chat.jsonl"))) == 4


@pytest.mark.parametrize(("content", "read"), READERS)
def test_byte_order_mark_changes_nothing(tmp_path: Path, content: str, read: Callable[[Path], Any]) -> None:
    for name, mark in (("plain", b""), ("marked", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(mark + content.encode())
    assert read(tmp_path / "marked") == read(tmp_path / "plain") != 0
