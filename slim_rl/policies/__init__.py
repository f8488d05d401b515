"""Engines that sample the policy's turns, behind one protocol (`dialogue.policy.Policy`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.errors import ConfigError, DataError


def check_model_name(name: str) -> None:
    """Raises ConfigError for a folder that does not exist, before it is taken for a hub name and looked for on the network."""
    path = Path(name)
    looks_local = path.is_absolute() or name.count("/") > 1 or ("/" in name and path.parent.is_dir())
    if looks_local and not path.exists():
        raise ConfigError(
            f"policy.model '{name}' is not a folder here; make it, or give a hub name such as Qwen/Qwen3-0.6B."
        )


def is_model_folder(folder: Path) -> bool:
    """Whether there is a model's config.json in the folder."""
    try:
        described = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and "model_type" in described


def check_model_folder(folder: Path) -> None:
    """Raises DataError unless `folder` is free for a model: not there, empty, or a model already, which may be replaced."""
    try:
        free = not folder.exists() or not any(folder.iterdir())
    except OSError:
        free = False
    if not free and not is_model_folder(folder):
        raise DataError(f"{folder} exists and is not a model's folder; name another, so that nothing in it is lost.")


def load_tokenizer(name: str) -> Any:
    """The fast tokenizer of a model folder or hub name. Raises ConfigError if there is none."""
    from transformers import AutoTokenizer

    name = bundled.model(name)
    check_model_name(name)
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{name} has no tokenizer ({reason}); give a model's folder or its name on the hub."
        ) from error
