"""A small run that the doctor looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.backends.checks import Check
from slim_rl.commands.doctor import run_doctor
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
    }


def doctor(tmp_path: Path, config: dict[str, Any], backend: str = "trl") -> dict[str, Check]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": config}))
    return {check.name: check for check in run_doctor(path, backend)}
