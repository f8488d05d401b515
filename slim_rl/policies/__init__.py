"""Engines that sample the policy's turns, behind one protocol (`dialogue.policy.Policy`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.errors import ConfigError, DataError, nearest
from slim_rl.files import read_object

_HUB_SECONDS = 5.0


def check_model_name(name: str, key: str = "policy.model") -> bool:
    """Returns True if the model is a folder or the hub knows it, False if the hub cannot be reached.

    A model that comes with slim_rl may be named as in a checkout.

    Args:
        key: config key or option that names the model, for the message.

    Raises:
        ConfigError: the folder does not exist, or the hub does not know the name.
    """
    path = Path(name)
    if path.exists() or Path(bundled.model(name)).exists():
        return True
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or ("/" in name and path.parent.is_dir()):
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, beside)
        meant = (
            f"Did you mean {path.parent / near}?" if near else "Create it, or give a hub name such as Qwen/Qwen3-0.6B."
        )
        raise ConfigError(f"{key} '{name}' is not a folder here. {meant}")
    return _ask_hub(name, key)


def _ask_hub(name: str, key: str) -> bool:
    """Returns True if the hub, asked once, knows the model; False if it does not answer.

    If the hub cannot be reached, its clients use their cache from then on, in this process and its children: they would retry for a minute.
    """
    try:
        import httpx
        from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache
    except ModuleNotFoundError:
        return False
    if constants.is_offline_mode():
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    try:
        HfApi().model_info(name, timeout=_HUB_SECONDS)
        return True
    except errors.GatedRepoError:
        return True
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ConfigError(
            f"{key} '{name}' is neither a folder here nor a model that the hub shows you. Give a folder, or a name such as "
            "Qwen/Qwen3-0.6B."
        ) from error
    except httpx.TransportError:
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except httpx.HTTPError:  # it answers, if not to this: its clients will report it
        return False


def is_model_folder(folder: Path) -> bool:
    """Returns True if the folder has a model's config.json."""
    try:
        return "model_type" in read_object(folder / "config.json")
    except DataError:
        return False


def weights_digest(folder: Path) -> str | None:
    """Returns the SHA-256 of a model folder's weights; None without weights."""
    digest, files = hashlib.sha256(), sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    for file in files:
        about = file.stat()
        digest.update(_digest_of_file(file.resolve(), about.st_size, about.st_mtime_ns))
    return digest.hexdigest() if files else None


@lru_cache(maxsize=256)
def _digest_of_file(file: Path, size: int, changed: int) -> bytes:
    """Returns a file's SHA-256, cached while its size and time stay: weights may be many gigabytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def check_model_folder(folder: Path) -> None:
    """Checks that a model may be written to `folder`: missing, empty, or a model's already. Raises DataError."""
    try:
        free = not folder.exists() or not any(folder.iterdir())
    except OSError:
        free = False
    if not free and not is_model_folder(folder):
        raise DataError(f"{folder} exists and is not a model's folder. Name another, so that nothing in it is lost.")


def load_tokenizer(name: str) -> Any:
    """Returns the fast tokenizer of a model folder or hub name. Raises ConfigError if it has no tokenizer."""
    from transformers import AutoTokenizer

    name = bundled.model(name)
    check_model_name(name)
    with unreadable(f"{name} has no tokenizer"):
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


@contextmanager
def unreadable(refused: str, *passed: type[Exception]) -> Iterator[None]:
    """Turns errors of reading a model's files into a ConfigError: an odd file can raise anything, such as KeyError.

    Args:
        refused: beginning of the message, before the reason.
        passed: errors that are not the files' fault, in addition to ImportError.
    """
    others: tuple[type[Exception], ...] = (ImportError, *passed)
    try:
        yield
    except others:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{refused} ({reason}). Give a model's folder or its name on the hub.") from error
