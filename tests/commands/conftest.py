"""A command of `slim-rl` as the tests of this room run it."""

from collections.abc import Callable
from typing import Any

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.policies import load_tokenizer
from tests.commands.shell import Done, call
from tests.paths import ROOT


@pytest.fixture
def slim_rl(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a command in this process, in the repository."""
    monkeypatch.chdir(ROOT)
    return call


@pytest.fixture(scope="session")
def speak() -> Callable[..., list[int]]:
    """A served model that asks once and then proposes."""
    chat = Chat(load_tokenizer(str(ROOT / "data" / "warmstart")))
    plan = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"

    def answer(ids: list[int], rng: Any) -> list[int]:
        first = ids.count(chat.end_id) == 2  # the system's and the user's
        return chat.said_ids("[message] What is Ava Li on BLEU?" if first else plan)

    return answer
