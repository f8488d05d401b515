"""The examples in docstrings run as they stand, in an empty folder."""

import doctest
import importlib
from pathlib import Path

import pytest

MODULES = (
    "session",
    "config",
    "dialogue.games_file",
    "dialogue.measures",
    "games.matching.study.demonstrations",
    "games.matching.reading.reader",
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(f"slim_rl.{module}"))
    assert result.attempted and not result.failed
