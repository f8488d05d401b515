"""A model that is neither here nor on the hub is refused in a sentence, and soon."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import PolicyConfig
from slim_rl.errors import ConfigError
from slim_rl.policies import check_model_name
from slim_rl.policies.transformers import load_model
from tests.paths import MISSING, ROOT


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path: Path, file: str) -> None:
    shutil.copytree(ROOT / "data" / "warmstart", tmp_path / "model")
    damages = [b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b"{]", b"", b"torn", b'{"version": "1.0"}']
    damages += [b'{"model_type": 3}', b'{"model_type": "qwen3", "hidden_size": "x"}']
    for damage in damages:
        (tmp_path / "model" / file).write_bytes(damage)
        if file == "tokenizer_config.json" and damage.startswith((b"{}", b'{"')):
            continue  # a tokenizer's settings may be few
        with pytest.raises(
            ConfigError, match=r"is not a folder with a model|has no tokenizer \(.+\)\. Give a model's"
        ) as caught:
            load_model(PolicyConfig(model=str(tmp_path / "model")))
        assert "\n" not in str(caught.value), damage


@pytest.mark.parametrize("name", [MISSING, "./modl", "../modl", "~/modl", "runs/x/modl", "a/b/c", "runs/modl"])
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "runs" / "x" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"'{name}' is not a folder here") as caught:
        check_model_name(name)
    assert ("Did you mean runs/x/model?" in str(caught.value)) == (name == "runs/x/modl")
    check_model_name("runs/x/model")
    check_model_name("data/warmstart")  # ours, from any folder
