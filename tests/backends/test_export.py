"""A run becomes a model folder that loads, says what it is, and plays as the checkpoint did; or nothing changes. By each trainer's own tool."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoModelForCausalLM

from slim_rl.backends.export import export
from slim_rl.backends.slime.export import checkpoints
from slim_rl.backends.trl import run as local
from slim_rl.commands.cells import Cell, evaluate
from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.files import write_atomically
from slim_rl.policies.transformers import load_model
from tests.backends.trl_setup import everything, make_config, same


@pytest.fixture(scope="module")
def trained(folder: Path) -> Config:
    config = make_config(folder, "exported", "train.save_every=1", "train.steps=2", "train.eval_games=2")
    if not config.run_dir.exists():
        local.train(config)
    return config


def weights(path: Path) -> dict[str, torch.Tensor]:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return {name: value.clone() for name, value in model.state_dict().items()}


def front(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((path / "README.md").read_text(encoding="utf-8").split("---\n", 2)[1])
    return data


def test_export_of_trl_checkpoint_plays_the_same_games(trained: Config, tmp_path: Path) -> None:
    assert export(trained.run_dir, tmp_path / "out").name == "checkpoint-2"
    assert same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))
    cells = [Cell(str(trained.run_dir / "model"), "shy"), Cell(str(tmp_path / "out"), "shy")]
    played = evaluate(trained, cells, tmp_path / "cells", 3)
    first, second = played.values()
    assert [[turn.text for turn in d.turns] for d in first] == [[turn.text for turn in d.turns] for d in second]
    before = everything(tmp_path / "out")
    with pytest.raises(DataError, match=r"out holds a model: name another folder, or replace it with --overwrite\.$"):
        export(trained.run_dir, tmp_path / "out", 1)
    assert everything(tmp_path / "out") == before
    export(trained.run_dir, tmp_path / "out", 1, [tmp_path / "cells"], overwrite=True)
    assert not same(weights(tmp_path / "out"), weights(trained.run_dir / "model")), "a step is chosen by its number"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# exported" in card and "1 of 2 steps" in card and "with trl" in card
    assert "| before training | 2 |" in card and f"| {next(iter(played))} | 3 |" in card
    with pytest.raises(DataError, match="has 1, 2"):
        export(trained.run_dir, tmp_path / "none", 7)


def test_an_export_that_fails_leaves_what_was_there(trained: Config, tmp_path: Path) -> None:
    run, newest = tmp_path / "run", tmp_path / "run" / "checkpoints" / "checkpoint-2"
    shutil.copytree(trained.run_dir, run)
    export(run, tmp_path / "out")
    before = everything(tmp_path / "out")
    (newest / "model.safetensors").write_bytes(b"x" * (newest / "model.safetensors").stat().st_size)
    with pytest.raises(ConfigError):
        export(run, tmp_path / "out", overwrite=True)
    assert everything(tmp_path / "out") == before and not [path for path in tmp_path.iterdir() if path.name[0] == "."]
    (newest / "trainer_state.json").unlink()  # unfinished, it is passed over
    assert export(run, tmp_path / "out", overwrite=True).name == "checkpoint-1"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(DataError, match="not a model"):
        export(run, tmp_path / "mine", overwrite=True)
    with pytest.raises(DataError, match="not a run's folder"):
        export(tmp_path / "mine", tmp_path / "out")


def test_adapters_are_merged(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    changes = ("train.steps=1", "train.save_every=1", "train.eval_games=0", "train.lora={r: 4}")
    config = make_config(folder, "lora", *changes)
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


def verl_run(folder: Path, run: Path, world: int = 1) -> Config:
    """A run of verl's as its trainer leaves it: the actor's FSDP shards, and the config and tokenizer beside them."""
    config = make_config(folder, run.name, "train.backend=verl", f"output_dir={run.parent}")
    model, tokenizer = load_model(config.policy)
    for step in (1, 2):
        actor = run / "checkpoints" / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        state = {name: value + step / 100 for name, value in model.state_dict().items()}
        torch.save(state, actor / f"model_world_size_{world}_rank_0.pt")
        (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": world}))
        model.config.save_pretrained(actor / "huggingface")
        tokenizer.save_pretrained(actor / "huggingface")
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    config.write(run / "config.yaml")
    return config


def test_verls_shards_are_merged_by_verls_own_merger(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("verl")
    config = verl_run(folder, tmp_path / "run")
    with pytest.raises(DataError, match="it has 1"):  # step 2 was being written
        export(tmp_path / "run", tmp_path / "out", 2)
    export(tmp_path / "run", tmp_path / "out")
    start = load_model(config.policy)[0].state_dict()
    for name, value in weights(tmp_path / "out").items():
        assert torch.allclose(value.float(), start[name] + 0.01, atol=0.02), name  # the merger writes bfloat16
    assert front(tmp_path / "out")["tags"][-1] == "verl"


_TOOL = """import argparse, os, shutil, sys
import megatron_stands_here
parser = argparse.ArgumentParser()
for flag in ("--input-dir", "--output-dir", "--origin-hf-dir"):
    parser.add_argument(flag, required=True)
parser.add_argument("-f", "--force", action="store_true")
args = parser.parse_args()
assert args.force and os.path.isdir(args.output_dir)
if os.path.exists(os.path.join(args.input_dir, "bad")):
    sys.exit("KeyError: 'embedding'")
for name in os.listdir(args.origin_hf_dir):
    shutil.copy(os.path.join(args.origin_hf_dir, name), args.output_dir)
"""


def test_slimes_checkpoint_goes_through_slimes_own_tool(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {
        "slime/train.py": "",
        "slime/tools/convert_torch_dist_to_hf.py": _TOOL,
        "Megatron-LM/megatron_stands_here.py": "",
    }
    for name, text in files.items():
        write_atomically(tmp_path / name, text)
    monkeypatch.setenv("SLIME_DIR", str(tmp_path / "slime"))
    monkeypatch.delenv("MEGATRON_DIR", raising=False)
    slime_run(folder, tmp_path / "run")
    done = export(tmp_path / "run", tmp_path / "out")
    assert done.name == "iter_0000001"  # 2 was being written
    assert same(weights(tmp_path / "out"), weights(folder / "model"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "with slime" in card and "2 of 4 steps" in card
    (tmp_path / "run" / "iter_0000001" / "bad").touch()
    with pytest.raises(SlimError, match="exit code 1"):
        export(tmp_path / "run", tmp_path / "other")
    assert "KeyError: 'embedding'" in capfd.readouterr().err and not (tmp_path / "other").exists()


def test_export_takes_a_finished_folder_of_slimes_save_hf(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slime_run(folder, run)
    shutil.copytree(folder / "model", run / "hf" / "5")
    assert export(run, tmp_path / "out") == run / "hf" / "5"
    assert same(weights(tmp_path / "out"), weights(folder / "model"))
    for number, index in ((7, True), (8, False)):
        half = run / "hf" / f"{number}"
        half.mkdir(parents=True)
        for name in ("config.json", "model-00001-of-00002.safetensors", *["model.safetensors.index.json"] * index):
            (half / name).touch()
    assert {5, 7, 8} & checkpoints(run).keys() == {5, 7}
