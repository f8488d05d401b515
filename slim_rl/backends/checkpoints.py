"""Checkpoints: the one that a run starts from, with what its config.json says, and those that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import read_object
from slim_rl.policies import check_model_name

LAST_WHOLE = "latest_checkpointed_iteration.txt"  # Megatron's and verl's last file of a save: the checkpoint's number
_NEEDED = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")


def locate_model(model: str, download: bool) -> Path:
    """Returns the checkpoint's folder: a local path unchanged, or the hub cache's folder of a hub name.

    Args:
        model: a folder, ``owner/name``, or a bare Qwen name such as ``Qwen3-4B``.
        download: fetch the whole checkpoint; otherwise its config.json alone.

    Raises:
        ConfigError: neither a folder nor a name the hub knows.
    """
    path = Path(bundled.model(model)).expanduser()
    if path.is_dir():
        return path.resolve()
    name = f"Qwen/{model}" if model.startswith("Qwen") and "/" not in model else model
    check_model_name(name, "MODEL")
    try:
        import huggingface_hub

        if download:
            return Path(huggingface_hub.snapshot_download(name))
        return Path(huggingface_hub.hf_hub_download(name, "config.json")).parent
    except Exception as error:  # the hub's client raises many kinds; all of them mean that there is no model
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"MODEL {model} is not a folder here and cannot be downloaded from the hub ({reason}); give a path."
        ) from error


def hub_name(folder: Path) -> str | None:
    """Returns OWNER/NAME of a snapshot in the hub's cache, which must not be written to; None for any other folder."""
    repository = folder.parent.parent.name  # models--OWNER--NAME/snapshots/COMMIT
    if folder.parent.name != "snapshots" or not repository.startswith("models--"):
        return None
    return repository.removeprefix("models--").replace("--", "/")


def read_model_config(model: str | Path) -> dict[str, Any]:
    """Returns the checkpoint's config.json, or the text part of a multimodal one.

    Raises:
        DataError: the file cannot be read.
    """
    path = Path(model) / "config.json"
    if not path.exists():
        raise DataError(f"Cannot read {path}: there is no such file; MODEL must be a Hugging Face checkpoint folder.")
    config = read_object(path)
    if config.get("auto_map"):
        raise DataError(
            f"{path} names the model's own code (auto_map), which slime would run; choose a model without it."
        )
    shape = dict(config.get("text_config") or config)
    missing = [key for key in _NEEDED if key not in shape]
    if missing:
        raise DataError(f"{path} describes no language model that slime could train: it has no {', '.join(missing)}.")
    return shape


def count_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a dense or mixture-of-experts transformer with gated MLPs, norms and biases left out."""
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    heads = int(config["num_attention_heads"])
    groups = int(config.get("num_key_value_heads") or heads)
    head = int(config.get("head_dim") or hidden // heads)
    attention = 2 * hidden * head * (heads + groups)
    experts = int(config.get("num_experts") or 0)
    width = int(config["moe_intermediate_size"]) * experts if experts else int(config["intermediate_size"])
    embeddings = int(config["vocab_size"]) * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return embeddings + layers * (attention + 3 * hidden * width)


def numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """Returns the folders `folder`/`prefix`N by N."""
    found = {path.name.removeprefix(prefix): path for path in folder.glob(f"{prefix}*") if path.is_dir()}
    return {int(number): path for number, path in found.items() if number.isascii() and number.isdigit()}


def last_whole(folder: Path) -> int | None:
    """Returns the number of the last complete checkpoint of slime or verl; None if there is none."""
    try:
        return int((folder / LAST_WHOLE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def whole_ones(folder: Path, prefix: str) -> dict[int, Path]:
    """Returns the complete checkpoints `folder`/`prefix`N of slime or verl by N; a later one was still being written."""
    last = last_whole(folder)
    return {number: path for number, path in numbered(folder, prefix).items() if last is not None and number <= last}
