"""A run becomes a model folder that loads, says what it is, and plays as the checkpoint did; or nothing changes. By each trainer's own tool."""

import pytest

pytest.importorskip("trl")

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from slim_rl.backends import Result
from slim_rl.backends.export import export
from slim_rl.backends.slime.export import checkpoints
from slim_rl.commands.cells import Cell, evaluate
from slim_rl.config import load_config, parse_config
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.files import write_atomically
from slim_rl.policies.transformers import load_model
from tests.backends.trl_setup import everything, make_config, same


def weights(path: Path) -> dict[str, torch.Tensor]:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_export_of_trl_checkpoint_plays_the_same_games(whole: Result, tmp_path: Path) -> None:
    out, model = tmp_path / "out", whole.run_dir / "model"
    assert export(whole.run_dir, out).name == "checkpoint-4"
    assert same(weights(out), weights(model))
    config, cells = load_config(whole.run_dir / "config.yaml"), [Cell(str(model), "shy"), Cell(str(out), "shy")]
    played = evaluate(config, cells, tmp_path / "cells", 3)
    first, second = ([[turn.text for turn in dialogue.turns] for dialogue in cell] for cell in played.values())
    assert first == second
    before = everything(out)
    with pytest.raises(DataError, match=r"out holds a model: name another folder, or replace it with --overwrite\.$"):
        export(whole.run_dir, out, 2)
    assert everything(out) == before
    export(whole.run_dir, out, 2, [tmp_path / "cells"], overwrite=True)
    assert not same(weights(out), weights(model)), "a step is chosen by its number"
    card = (out / "README.md").read_text()
    for words in ("# whole", "2 of 4 steps", "with trl", "| before training | 4 |", f"| {next(iter(played))} | 3 |"):
        assert words in card
    with pytest.raises(DataError, match="has 2, 4"):
        export(whole.run_dir, tmp_path / "none", 7)


def test_an_export_that_fails_leaves_what_was_there(whole: Result, tmp_path: Path) -> None:
    run, out, newest = tmp_path / "run", tmp_path / "out", tmp_path / "run" / "checkpoints" / "checkpoint-4"
    shutil.copytree(whole.run_dir, run)
    export(run, out)
    before = everything(out)
    (newest / "model.safetensors").write_bytes(b"x" * (newest / "model.safetensors").stat().st_size)
    with pytest.raises(ConfigError):
        export(run, out, overwrite=True)
    assert everything(out) == before and not [path for path in tmp_path.iterdir() if path.name[0] == "."]
    (newest / "trainer_state.json").unlink()  # unfinished, it is passed over
    assert export(run, out, overwrite=True).name == "checkpoint-2"
    write_atomically(tmp_path / "mine" / "thesis.txt", "")
    with pytest.raises(DataError, match="not a model"):
        export(run, tmp_path / "mine", overwrite=True)
    with pytest.raises(DataError, match="not a run's folder"):
        export(tmp_path / "mine", out)
    parse_config({}).write(tmp_path / "begun" / "config.yaml")
    with pytest.raises(DataError, match=r"no whole checkpoint yet"):
        export(tmp_path / "begun", tmp_path / "none")


def test_verls_shards_are_merged_by_verls_own_merger(folder: Path, tmp_path: Path) -> None:
    """Of a run as verl's trainer leaves it: the actor's FSDP shards, and the config and tokenizer beside them."""
    pytest.importorskip("verl")
    run, config = tmp_path / "run", make_config(folder, "run", "train.backend=verl", f"output_dir={tmp_path}")
    config.write(run / "config.yaml")
    model, tokenizer = load_model(config.policy)
    start = model.state_dict()
    for step in (1, 2):
        actor = run / "checkpoints" / f"global_step_{step}" / "actor"
        write_atomically(actor / "fsdp_config.json", json.dumps({"FSDP_version": 2, "world_size": 1}))
        torch.save({name: value + step / 100 for name, value in start.items()}, actor / "model_world_size_1_rank_0.pt")
        model.config.save_pretrained(actor / "huggingface")
        tokenizer.save_pretrained(actor / "huggingface")
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    with pytest.raises(DataError, match="it has 1"):  # step 2 was being written
        export(run, tmp_path / "out", 2)
    export(run, tmp_path / "out")
    for name, value in weights(tmp_path / "out").items():
        assert torch.allclose(value.float(), start[name] + 0.01, atol=0.02), name  # the merger writes bfloat16
    assert "- verl\n" in (tmp_path / "out" / "README.md").read_text().split("---\n")[1]


def slime_run(folder: Path, run: Path) -> None:
    for number in (0, 1, 2):
        write_atomically(run / f"iter_{number:07d}" / "common.pt", "")
    (run / "latest_checkpointed_iteration.txt").write_text("1\n")
    make_config(folder, run.name, "train.backend=slime").write(run / "config.yaml", mis={"other_plugin": 1})


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
    (done / "bad").touch()
    with pytest.raises(SlimError, match="exit code 1"):
        export(tmp_path / "run", tmp_path / "other")
    assert "KeyError: 'embedding'" in capfd.readouterr().err and not (tmp_path / "other").exists()


def test_export_takes_a_finished_folder_of_slimes_save_hf(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slime_run(folder, run)
    shutil.copytree(folder / "model", run / "hf" / "5")
    assert export(run, tmp_path / "out") == run / "hf" / "5"
    assert same(weights(tmp_path / "out"), weights(folder / "model"))
    for name in (
        "7/model.safetensors.index.json",
        *(f"{number}/model-00001-of-00002.safetensors" for number in (7, 8)),
    ):
        write_atomically(run / "hf" / name, "")
        write_atomically((run / "hf" / name).with_name("config.json"), "")
    assert {5, 7, 8} & checkpoints(run).keys() == {5, 7}
