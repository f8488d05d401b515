"""Models small enough to make on the spot, with random weights."""

from pathlib import Path
from typing import Any

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 8192,
}


def tiny_qwen3(vocab_size: int, **changed: Any) -> Any:
    """A Qwen3 of two thin layers, the same at every call, ready to sample from."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**({"vocab_size": vocab_size, "head_dim": 16} | SHAPE | changed))).eval()


def checkpoint(folder: Path, tokenizer: Any) -> Path:
    """A Qwen3 of two thin layers, with its tokenizer, in a folder."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tiny_qwen3(len(tokenizer), **ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
