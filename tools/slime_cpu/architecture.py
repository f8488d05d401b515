"""Megatron's flags for the architecture of a Qwen2 or Qwen3, from its config.json.

python -m slime_cpu.architecture FOLDER      prints them in one line
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.backends.slime.flags import words
from slim_rl.errors import ConfigError
from slim_rl.files import read_object

_OWN = {"qwen2": "--add-qkv-bias", "qwen3": "--qk-layernorm"}  # what one has and the other has not


def architecture(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Returns flag -> value for the content of a config.json. Raises ConfigError for another family of models."""
    family = shape.get("model_type")
    if family not in _OWN:
        raise ConfigError(
            f"The model's model_type is {family}, but slime_cpu knows {' and '.join(_OWN)} only; set MODEL_SCRIPT to a file of slime's scripts/models."
        )
    heads = shape["num_attention_heads"]
    return {
        "--swiglu": True,
        "--num-layers": shape["num_hidden_layers"],
        "--hidden-size": shape["hidden_size"],
        "--ffn-hidden-size": shape["intermediate_size"],
        "--num-attention-heads": heads,
        "--group-query-attention": True,
        "--num-query-groups": shape["num_key_value_heads"],
        "--kv-channels": shape.get("head_dim") or shape["hidden_size"] // heads,
        "--use-rotary-position-embeddings": True,
        "--rotary-base": int(shape.get("rope_theta") or shape["rope_parameters"]["rope_theta"]),
        "--disable-bias-linear": True,
        "--normalization": "RMSNorm",
        "--norm-epsilon": shape["rms_norm_eps"],
        "--vocab-size": shape["vocab_size"],
        "--untie-embeddings-and-output-weights": not shape.get("tie_word_embeddings"),
        _OWN[family]: True,
    }


if __name__ == "__main__":
    print(*words(architecture(read_object(Path(sys.argv[1]) / "config.json"))))
