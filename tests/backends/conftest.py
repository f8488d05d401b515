"""What the tests of training by TRL start from, made once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slim_rl.backends import Result


@pytest.fixture(scope="session")
def warm_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of games and a tiny warm-started model."""
    from slim_rl.lab.warmstart.train import warmstart
    from tests.backends.test_trl import make_config

    folder = tmp_path_factory.mktemp("warm-start")
    warmstart(make_config(folder, "warm"), folder / "model")
    return folder


@pytest.fixture(scope="module")
def folder(warm_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of them, to train in."""
    return shutil.copytree(warm_start, tmp_path_factory.mktemp("trl"), dirs_exist_ok=True)


@pytest.fixture(scope="session")
def whole(warm_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run that nothing disturbed, which others are compared with."""
    from slim_rl.backends.trl.run import train
    from tests.backends.test_trl import make_config

    folder = shutil.copytree(warm_start, tmp_path_factory.mktemp("whole"), dirs_exist_ok=True)
    return train(make_config(folder, "whole"))
