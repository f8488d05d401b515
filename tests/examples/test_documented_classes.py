"""The classes that the tutorial and the API page print can be played, and their config is read."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl import RolloutWorker, Turn, View, load_config, load_rows
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue, StopReason
from tests.paths import ROOT


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


class Bisecting(Partner):
    """Guesses the middle of what Higher and Lower leave."""

    identity: ClassVar = {"kind": "bisecting"}

    async def act(self, view: View) -> Turn:
        low, high = 1, 8
        for utterance in view.history:
            guess = int(utterance.text)
            low, high = (guess + 1, high) if utterance.observation == "Higher." else (low, guess - 1)
        return Turn(str((low + high) // 2))


def test_tutorial_environment_is_played_by_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,), (config, *_) = (
        blocks("tutorials/custom-environment.md", "python"),
        blocks("tutorials/custom-environment.md", "yaml"),
    )
    (tmp_path / "my_game.py").write_text(code)
    (tmp_path / "my_game.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = load_config("my_game.yaml")
    worker = RolloutWorker(settings, None, Bisecting())
    specs = [worker.spec(row, "test", phase="eval") for row in load_rows(settings, "eval")[:8]]
    played = [dialogue for (dialogue,) in asyncio.run(worker.play_all(specs))]
    assert {dialogue.stop_reason for dialogue in played} == {StopReason.FINISHED}
    assert all(dialogue.reward == pytest.approx(1 - (len(dialogue.turns) - 1) / 5) for dialogue in played)


def test_api_page_partner_reward_and_environment_work() -> None:
    names: dict[str, Any] = {}
    for code in blocks("reference/environment-api.md", "python"):
        exec(code, names)
    view = View(1, "", "", (), None, 0)
    assert asyncio.run(names["Echo"]().act(view)).text == "[message] You said: "
    config = load_config("matching_local")
    dialogue = Dialogue("a", "g", 0, 0, {}, {}, {}, turns=[Turn("x")] * 3, reward=0.5, stop_reason=StopReason.AGREED)
    assert names["Brief"](config)([dialogue], 0).rewards == [pytest.approx(0.47)]
    assert issubclass(names["Squared"], names["MatchingEnv"])
