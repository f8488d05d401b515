"""A small run that the doctor looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.backends.doctor import EXAMINATIONS, Check, examine
from slim_rl.config import load_config
from tests.fakes.cluster import write_model


@pytest.fixture
def policy(tmp_path: Path, tokenizer: Any) -> Path:
    """A small checkpoint folder: a tokenizer with ChatML and a config.json."""
    folder = write_model(tmp_path, "Qwen3-0.6B", hidden_size=64, num_hidden_layers=2, vocab_size=400)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def config(tmp_path: Path, policy: Path) -> dict[str, Any]:
    return {
        "game": {"n": 3, "scales": False},
        "data": {
            "train": str(tmp_path / "games.jsonl"),
            "eval": str(tmp_path / "eval.jsonl"),
            "num_train": 5,
            "num_eval": 2,
        },
        "policy": {"model": str(policy)},
        "output_dir": str(tmp_path / "runs"),
        "train": {"games_per_step": 4},
    }


def doctor(tmp_path: Path, config: dict[str, Any]) -> dict[str, Check]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": config}))
    return {check.name: check for check in examine(load_config(path), EXAMINATIONS)}
