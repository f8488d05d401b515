"""A model that is neither here nor on the hub is refused in a sentence, and soon."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import PolicyConfig
from slim_rl.errors import ConfigError
from slim_rl.policies import check_model_name, load_tokenizer
from slim_rl.policies.transformers import load_model
from tests.commands.shell import process
from tests.fakes.hub import Hub, unreachable
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


def test_mistyped_model_without_hub_fails_fast(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with unreachable() as (url, tried):
        own = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = process("play", "matching_local", "--model", "modl", cwd=tmp_path, env=os.environ | own)
    assert len(tried) <= 2, "the hub's own clients try again and again, for a minute"
    assert done.returncode == 1 and "Retrying" not in done.stderr
    assert "'modl' is not a reachable hub name" in done.stderr.splitlines()[-1]


def test_a_name_that_the_hub_does_not_know_is_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with Hub() as hub:
        own = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = process("play", "matching_local", "--model", "owner/modl", cwd=tmp_path, env=os.environ | own)
        assert [path for path in hub.asked if "modl" in path] == ["/api/models/owner/modl"], "one quick try"
    assert done.returncode == 1
    assert "policy.model 'owner/modl' is neither a folder here nor a model that the hub shows you" in done.stderr


@pytest.mark.parametrize("name", [MISSING, "./modl", "../modl", "~/modl", "runs/x/modl", "a/b/c", "runs/modl"])
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "runs" / "x" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"'{name}' is not a folder here") as caught:
        check_model_name(name)
    assert ("Did you mean runs/x/model?" in str(caught.value)) == (name == "runs/x/modl")
    check_model_name("runs/x/model")
    check_model_name("data/warmstart")  # ours, from any folder
