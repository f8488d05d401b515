"""slime's own conversion tool over a checkpoint as Megatron lays it out, where slime's and Megatron's sources are at hand."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch.distributed import checkpoint  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from slim_rl.backends.export import export  # noqa: E402
from slim_rl.config import parse_config  # noqa: E402
from tests.fakes.upstream import megatrons, slimes  # noqa: E402
from tests.paths import ROOT  # noqa: E402

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
