"""The doctor's estimate of what weights, gradients and optimizer take is what Megatron allocates for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from slim_rl.backends.checkpoints import count_parameters, read_model_config
from slim_rl.backends.slime.doctor import training_bytes
from tests.fakes.models import tiny_qwen3
from tests.paths import ROOT

pytestmark = [pytest.mark.slime, pytest.mark.xdist_group("imported")]
FLAGS = {
    "num_hidden_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "intermediate_size": "--ffn-hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "num_key_value_heads": "--num-query-groups",
    "head_dim": "--kv-channels",
    "vocab_size": "--vocab-size",
}
SIZES = {  # layers, hidden size, MLP, heads, query groups, size of a head, vocabulary; whether the embeddings are tied
    "0.2M": (2, 64, 192, 4, 2, 16, 640, False),
    "1.3M": (6, 128, 384, 4, 2, 32, 1280, True),
    "8.9M": (8, 256, 1024, 8, 4, 32, 2048, False),
}


@pytest.mark.parametrize("size", SIZES)
def test_the_estimate_is_what_megatron_allocates(size: str, slime: Any, tmp_path: Path) -> None:
    *numbers, tied = SIZES[size]
    shape = dict(zip(FLAGS, numbers, strict=True))
    tiny_qwen3(**shape, tie_word_embeddings=tied).save_pretrained(tmp_path)
    for tokenizer in (ROOT / "data" / "warmstart").glob("*token*"):
        shutil.copy(tokenizer, tmp_path)
    flags = {flag: shape[key] for key, flag in FLAGS.items()} | {"--untie-embeddings-and-output-weights": not tied}
    found = slime("allocated", model=tmp_path, architecture=flags)
    parameters = count_parameters(read_model_config(tmp_path))
    estimate, total = training_bytes(parameters, split=1, gpus=1, vocabulary=0), sum(found.values())
    each = ", ".join(f"{name} {value / parameters:.2f}" for name, value in found.items())
    print(f"{parameters} parameters: bytes a parameter: {each}; estimate over allocated {estimate / total:.3f}")
    assert estimate == pytest.approx(total, rel=0.1)
