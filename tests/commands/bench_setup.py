"""A benchmark of two suites of six games, and results of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from slim_rl.cli import main
from slim_rl.games.matching import MatchingEnv

PLAN = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"
SUITE = {
    "name": "tiny",
    "game": {"n": 3, "p_observed": 0.2, "p_observed_2": 0.9, "hardness": 0, "scales": False, "max_turns": 20},
    "data": {"num_eval": 6, "seed": 7},
    "partner": {"kind": "shy", "accept_fraction": 0, "args": {"max_pairs": 1}},
    "arms": {"free": {}, "priced": {"train.reward": "price", "train.reward_args": {"price": [0.02]}}},
}


class NewInstrument(MatchingEnv):
    """The game once its annotator has changed."""

    annotator_version: ClassVar[int] = MatchingEnv.annotator_version + 1


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert not ended.value.code


def refused(capsys: Any, *words: object) -> str:
    """The one sentence that a command ends with."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("slim-rl: ")]
    assert ended.value.code == 1 and len(said) == 1
    return str(said[0])


def written(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(yaml.safe_dump({"slim_rl": SUITE | changes}))
    return folder


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """A folder of one file, with two suites of six games."""
    return written(tmp_path / "suites")


@pytest.fixture
def bench(suites: Path, tmp_path: Path) -> Callable[..., Path]:
    """Plays a model, and gives its file."""

    def play(model: str, *words: object) -> Path:
        run("lab", "bench", model, "--suites", suites, "--output", tmp_path / "bench", *words)
        return max((tmp_path / "bench").glob("*.json.gz"), key=lambda path: path.stat().st_mtime_ns)

    return play


def content(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The file as someone has changed it."""
    data = content(path)
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path
