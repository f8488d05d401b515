"""A run becomes a model folder that loads, says what it is, and plays as the checkpoint did; or nothing changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl")
import torch
from transformers import AutoModelForCausalLM

from slim_rl.backends.export import export
from slim_rl.backends.trl import run as local
from slim_rl.commands.cells import Cell, evaluate
from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError, DataError
from tests.backends.test_trl import make_config


@pytest.fixture(scope="module")
def trained(folder: Path) -> Config:
    config = make_config(folder, "exported", "train.save_every=1", "train.steps=2", "train.eval_games=2")
    if not config.run_dir.exists():
        local.train(config)
    return config


def weights(path: Path) -> dict[str, torch.Tensor]:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def front(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((path / "README.md").read_text(encoding="utf-8").split("---\n", 2)[1])
    return data


def test_an_unfinished_checkpoint_is_passed_over(trained: Config, tmp_path: Path) -> None:
    shutil.copytree(trained.run_dir, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "checkpoint-2" / "trainer_state.json").unlink()
    assert export(tmp_path / "run", tmp_path / "out").name == "checkpoint-1"


def test_export_of_trl_checkpoint_plays_the_same_games(trained: Config, tmp_path: Path) -> None:
    done = export(trained.run_dir, tmp_path / "out")
    assert done.name == "checkpoint-2"
    assert same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))
    cells = [Cell(str(trained.run_dir / "model"), "shy"), Cell(str(tmp_path / "out"), "shy")]
    first, second = evaluate(trained, cells, tmp_path / "cells", 4).values()
    assert [[turn.text for turn in d.turns] for d in first] == [[turn.text for turn in d.turns] for d in second]


def test_a_step_is_chosen_by_its_number_and_the_card_says_so(trained: Config, tmp_path: Path) -> None:
    cells = evaluate(trained, [Cell(str(trained.run_dir / "model"), "shy")], tmp_path / "cells", 3)
    export(trained.run_dir, tmp_path / "out", 1, [tmp_path / "cells"])
    assert not same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# exported" in card and "1 of 2 steps" in card and "with trl" in card
    assert "| before training | 2 |" in card and f"| {next(iter(cells))} | 3 |" in card
    with pytest.raises(DataError, match="has 1, 2"):
        export(trained.run_dir, tmp_path / "none", 7)


def test_a_model_is_replaced_only_when_told_to(trained: Config, tmp_path: Path) -> None:
    export(trained.run_dir, tmp_path / "out", 1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError, match=r"out holds a model: name another folder, or replace it with --overwrite\.$"):
        export(trained.run_dir, tmp_path / "out", 2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    export(trained.run_dir, tmp_path / "out", 2, overwrite=True)
    assert same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))


def test_an_export_that_fails_leaves_what_was_there(trained: Config, tmp_path: Path) -> None:
    export(trained.run_dir, tmp_path / "out")
    before = weights(tmp_path / "out")
    run = tmp_path / "run"
    shutil.copytree(trained.run_dir, run)
    newest = run / "checkpoints" / "checkpoint-2" / "model.safetensors"
    newest.write_bytes(b"x" * newest.stat().st_size)
    with pytest.raises(ConfigError):
        export(run, tmp_path / "out", overwrite=True)
    assert (
        same(before, weights(tmp_path / "out"))
        and [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(DataError, match="not a model"):
        export(trained.run_dir, tmp_path / "mine", overwrite=True)
    with pytest.raises(DataError, match="not a run's folder"):
        export(tmp_path / "mine", tmp_path / "out")


def test_adapters_are_merged(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    config = make_config(
        folder, "lora", "train.steps=1", "train.save_every=1", "train.eval_games=0", "train.lora={r: 4}"
    )
    local.train(config)
    export(config.run_dir, tmp_path / "out")
    merged, model = weights(tmp_path / "out"), weights(config.run_dir / "model")
    assert merged.keys() == model.keys()
    assert all(torch.allclose(merged[name], model[name], atol=1e-5) for name in merged)


def slime_run(folder: Path, run: Path) -> Config:
    config = make_config(folder, run.name, "train.backend=slime")
    for number in (0, 1, 2):
        (run / f"iter_{number:07d}").mkdir(parents=True)
        (run / f"iter_{number:07d}" / "common.pt").touch()
    (run / "latest_checkpointed_iteration.txt").write_text("1\n")
    config.write(run / "config.yaml", mis={"other_plugin": 1})
    return config


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    parse_config({}).write(tmp_path / "run" / "config.yaml")
    with pytest.raises(DataError, match=r"no whole checkpoint yet"):
        export(tmp_path / "run", tmp_path / "out")
