"""A run becomes a model folder that loads, says what it is, and plays as the checkpoint did; or nothing changes. By each trainer's own tool."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.distributed import checkpoint
from transformers import AutoModelForCausalLM

from slim_rl.backends.export import export
from slim_rl.backends.slime.export import checkpoints
from slim_rl.backends.trl import run as local
from slim_rl.commands.cells import Cell, evaluate
from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.policies.transformers import load_model
from tests.backends.test_trl import make_config
from tests.fakes.upstream import megatrons, slimes
from tests.paths import ROOT


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


MODEL = ROOT / "data" / "warmstart"
_LAYER = {  # Megatron's name in a layer: the checkpoint's
    "self_attention.linear_proj.weight": "self_attn.o_proj",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm",
    "self_attention.q_layernorm.weight": "self_attn.q_norm",
    "self_attention.k_layernorm.weight": "self_attn.k_norm",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm",
    "mlp.linear_fc2.weight": "mlp.down_proj",
}


@pytest.mark.skipif(not (slimes() and megatrons()), reason="slime's and Megatron's sources are not here")
def test_slimes_own_tool_gives_the_weights_that_megatron_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIME_DIR", str(slimes()[0]))
    monkeypatch.setenv("MEGATRON_DIR", str(megatrons()[0]))
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    config, weights = model.config, {name: value + 0.01 for name, value in model.state_dict().items()}
    groups, layers = config.num_key_value_heads, range(config.num_hidden_layers)

    def stacked(*names: str) -> torch.Tensor:
        return torch.stack(
            [torch.cat([weights[f"model.layers.{layer}.{name}.weight"] for name in names]) for layer in layers]
        )

    def attention(layer: int) -> torch.Tensor:  # the query heads of a group, then its key and its value
        parts = (weights[f"model.layers.{layer}.self_attn.{part}_proj.weight"] for part in "qkv")
        return torch.cat([part.view(groups, -1, config.hidden_size) for part in parts], 1).reshape(
            -1, config.hidden_size
        )

    padding = torch.zeros(8, config.hidden_size)
    state = {
        "embedding.word_embeddings.weight": torch.cat([weights["model.embed_tokens.weight"], padding]),
        "decoder.final_layernorm.weight": weights["model.norm.weight"],
        "decoder.layers.self_attention.linear_qkv.weight": torch.stack([attention(layer) for layer in layers]),
        "decoder.layers.mlp.linear_fc1.weight": stacked("mlp.gate_proj", "mlp.up_proj"),
        **{f"decoder.layers.{name}": stacked(own) for name, own in _LAYER.items()},
    }
    run = tmp_path / "run"
    checkpoint.save(state, checkpoint_id=str(run / "iter_0000004"), no_dist=True)
    arguments = Namespace(
        num_layers=len(layers), hidden_size=config.hidden_size, num_attention_heads=config.num_attention_heads,
        num_query_groups=groups, kv_channels=config.head_dim, vocab_size=config.vocab_size, num_experts=None, q_lora_rank=None,
    )  # fmt: skip
    torch.save({"args": arguments}, run / "iter_0000004" / "common.pt")
    (run / "latest_checkpointed_iteration.txt").write_text("4")
    parse_config({"policy": {"model": str(MODEL)}, "train": {"backend": "slime"}}).write(run / "config.yaml")

    export(run, tmp_path / "out")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).state_dict()
    assert found.keys() == weights.keys()
    assert all(torch.allclose(found[name], value) for name, value in weights.items())
    assert "5 of 150 steps." in (tmp_path / "out" / "README.md").read_text(), "slime's first checkpoint is 0"
