"""What tests of several trainers start from, made once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

from tests.fakes.models import checkpoint

if TYPE_CHECKING:
    from slim_rl.backends import Result


@contextmanager
def once(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that the processes of these tests share, for one of them at a time."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        yield folder


@pytest.fixture(scope="session")
def warm_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of games and a tiny warm-started model."""
    from slim_rl.lab.warmstart.train import warmstart
    from tests.backends.trl_setup import make_config

    with once(tmp_path_factory, "warm-start") as folder:
        if not (folder / "model").exists():
            warmstart(make_config(folder, "warm"), folder / "model")
    return folder


@pytest.fixture(scope="module")
def folder(warm_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of them, to train in."""
    return shutil.copytree(warm_start, tmp_path_factory.mktemp("trl"), dirs_exist_ok=True)


@pytest.fixture(scope="session")
def whole(warm_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of TRL's that nothing disturbed, which others are compared with."""
    from slim_rl.backends.trl.run import train
    from tests.backends.trl_setup import make_config

    with once(tmp_path_factory, "whole") as folder:
        shutil.copytree(warm_start, folder, dirs_exist_ok=True)
        return train(make_config(folder, "whole"))  # the second time it is over


@pytest.fixture
def server(tokenizer: Any) -> Iterator[Any]:
    """An SGLang server whose model asks three times and then proposes."""
    from tests.backends.slime_setup import serve

    with serve(tokenizer) as running:
        yield running


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A tiny untrained checkpoint."""
    return checkpoint(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Callable[..., Any]:
    """verl's runs by their settings, each written once: slim_rl's config and verl's."""
    from tests.backends.verl_setup import make_run

    made: dict[str, Any] = {}

    def run(settings: dict[str, Any] | None = None, *extra: str) -> Any:
        key = json.dumps([settings, extra])
        if key not in made:
            made[key] = make_run(tmp_path_factory.mktemp("run"), model, settings or {}, *extra)
        return made[key]

    return run


@pytest.fixture(scope="session")
def rows(runs: Callable[..., Any], tokenizer: Any) -> list[dict[str, Any]]:
    """Two games, read by verl's own dataset."""
    from tests.backends.verl_setup import RLHFDataset

    _, verl = runs()
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    assert len(dataset) == 4
    return [dataset[index] | {"uid": f"game{index}"} for index in range(2)]
