"""Logs of made-up runs, shared by the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

from slim_rl.analysis import Summary, analyze


@pytest.fixture(scope="session")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of two runs each; see `synthetic.ASKS` for what they do."""
    folder = tmp_path_factory.mktemp("logs")
    synthetic.write_runs(folder, arms=("mute", "shy"), seeds=2, steps=24, games_per_step=3, group=3, n=3, eval_games=8)
    return folder


@pytest.fixture(scope="session")
def analysed(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return analyze([log_dir], tmp_path_factory.mktemp("plots"), max_dialogues=60, command="analyze <these> & those")
