"""A model that is neither here nor on the hub is refused in a sentence, and soon."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import PolicyConfig
from slim_rl.errors import ConfigError
from slim_rl.policies import check_model_name, load_tokenizer
from slim_rl.policies.transformers import load_model
from tests.paths import MISSING, ROOT


@pytest.mark.parametrize(
    "described", ["[]", "null", '{"model_type": 3}', '{"model_type": "qwen3", "hidden_size": "x"}']
)
def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path, described) -> None:
    (tmp_path / "config.json").write_text(described)
    with pytest.raises(ConfigError, match="is not a folder with a model"):
        load_model(PolicyConfig(model=str(tmp_path)))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tokenizer.json", '{"version": "1.0"}'),
        ("tokenizer.json", ""),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_one_sentence(tmp_path: Path, file: str, text: str) -> None:
    shutil.copytree(ROOT / "data" / "warmstart", tmp_path / "model")
    (tmp_path / "model" / file).write_text(text)
    with pytest.raises(ConfigError, match=r"model has no tokenizer \(.+\)\. Give a model's folder") as caught:
        load_tokenizer(str(tmp_path / "model"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [MISSING, "./modl", "../modl", "~/modl", "runs/x/modl", "a/b/c", "runs/modl"])
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "runs" / "x" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"'{name}' is not a folder here") as caught:
        check_model_name(name)
    assert ("Did you mean runs/x/model?" in str(caught.value)) == (name == "runs/x/modl")
    check_model_name("runs/x/model")
    check_model_name("data/warmstart")  # ours, from any folder
