"""`slim-rl export` of runs whose checkpoints are in shards: verl's and slime's, by each one's own tool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("trl")
import torch

from slim_rl.backends.export import export
from slim_rl.backends.slime.export import checkpoints
from slim_rl.config import Config
from slim_rl.errors import DataError, SlimError
from slim_rl.policies.transformers import load_model
from tests.backends.test_export import front, same, slime_run, weights
from tests.backends.test_trl import make_config


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


@pytest.fixture
def slime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """slime's checkout with a conversion tool that takes its flags and converts nothing, and Megatron's."""
    (tmp_path / "slime" / "tools").mkdir(parents=True)
    (tmp_path / "slime" / "train.py").touch()
    (tmp_path / "slime" / "tools" / "convert_torch_dist_to_hf.py").write_text(_TOOL)
    (tmp_path / "Megatron-LM").mkdir()
    (tmp_path / "Megatron-LM" / "megatron_stands_here.py").touch()
    monkeypatch.setenv("SLIME_DIR", str(tmp_path / "slime"))
    monkeypatch.delenv("MEGATRON_DIR", raising=False)
    return tmp_path / "slime"


def test_slimes_checkpoint_goes_through_slimes_own_tool(folder: Path, slime: Path, tmp_path: Path) -> None:
    slime_run(folder, tmp_path / "run")
    done = export(tmp_path / "run", tmp_path / "out")
    assert done.name == "iter_0000001"  # 2 was being written
    assert same(weights(tmp_path / "out"), weights(folder / "model"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "with slime" in card and "2 of 4 steps" in card


def test_what_slimes_tool_says_when_it_fails_is_shown(
    folder: Path, slime: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slime_run(folder, tmp_path / "run")
    (tmp_path / "run" / "iter_0000001" / "bad").touch()
    with pytest.raises(SlimError, match="exit code 1"):
        export(tmp_path / "run", tmp_path / "out")
    assert "KeyError: 'embedding'" in capfd.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_that_slime_wrote_by_save_hf_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slime_run(folder, run)
    shutil.copytree(folder / "model", run / "hf" / "5")
    done = export(run, tmp_path / "out")
    assert done == run / "hf" / "5" and same(weights(tmp_path / "out"), weights(folder / "model"))


def test_a_folder_that_slime_has_not_finished_is_no_checkpoint(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slime_run(folder, run)
    for number, index in ((5, True), (6, False)):
        half = run / "hf" / f"{number}"
        half.mkdir(parents=True)
        for name in ("config.json", "model-00001-of-00002.safetensors"):
            (half / name).touch()
        if index:
            (half / "model.safetensors.index.json").touch()
    assert {5, 6} & checkpoints(run).keys() == {5}
