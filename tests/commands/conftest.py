"""A command of `slim-rl` as the tests of this room run it."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slim_rl import cli
from slim_rl.dialogue.chat import Chat
from slim_rl.policies import load_tokenizer
from tests.paths import ROOT


@pytest.fixture
def slim_rl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in this process, which has its libraries loaded already: what it prints and its exit code."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        try:
            cli.main([*map(str, arguments)])
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run


@pytest.fixture(scope="session")
def speak() -> Callable[..., list[int]]:
    """A served model that asks once and then proposes."""
    chat = Chat(load_tokenizer(str(ROOT / "data" / "warmstart")))
    plan = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"

    def answer(ids: list[int], rng: Any) -> list[int]:
        first = ids.count(chat.end_id) == 2  # the system's and the user's
        return chat.said_ids("[message] What is Ava Li on BLEU?" if first else plan)

    return answer
