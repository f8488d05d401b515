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
    """Returns True if the model is a folder or the hub knows it, False if the hub cannot be reached. A model that comes with slim_rl
    may be named as in a checkout. Raises ConfigError for a folder that does not exist, and for a name that the hub does not know.

    Args:
        key: what names it, for the message.
    """
    path = Path(name)
    if path.exists() or Path(bundled.model(name)).exists():
        return True
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or ("/" in name and path.parent.is_dir()):
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, beside)
        meant = (
            f"did you mean {path.parent / near}?" if near else "make it, or give a hub name such as Qwen/Qwen3-0.6B."
        )
        raise ConfigError(f"{key} '{name}' is not a folder here; {meant}")
    return _ask_hub(name, key)


def _ask_hub(name: str, key: str) -> bool:
    """Asks once whether the hub knows the model; returns False if it does not answer. Where it cannot be reached, what its clients have
    in their cache must do from here on, in this process and its children: they would try again for a minute.
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
            f"{key} '{name}' is neither a folder here nor a model that the hub shows you; give a folder, or a name such as "
            "Qwen/Qwen3-0.6B."
        ) from error
    except httpx.TransportError:
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except httpx.HTTPError:  # it answers, if not to this: its clients will say
        return False


def is_model_folder(folder: Path) -> bool:
    """Whether there is a model's config.json in the folder."""
    try:
        return "model_type" in read_object(folder / "config.json")
    except DataError:
        return False


def weights_digest(folder: Path) -> str | None:
    """Of a model folder's weights; None where there is no such folder, or it has none."""
    digest, files = hashlib.sha256(), sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    for file in files:
        about = file.stat()
        digest.update(_digest_of_file(file.resolve(), about.st_size, about.st_mtime_ns))
    return digest.hexdigest() if files else None


@lru_cache(maxsize=256)
def _digest_of_file(file: Path, size: int, changed: int) -> bytes:
    """Read once while its size and time stay: every cell of an evaluation asks, and weights may be many gigabytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


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
    with unreadable(f"{name} has no tokenizer"):
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


@contextmanager
def unreadable(refused: str, *passed: type[Exception]) -> Iterator[None]:
    """Makes a ConfigError of what reading a model's files raises: an odd file can be any error, a KeyError, a RecursionError,
    safetensors' own.

    Args:
        refused: the sentence, up to its reason.
        passed: errors that are not the files' fault, beside an ImportError.
    """
    others: tuple[type[Exception], ...] = (ImportError, *passed)
    try:
        yield
    except others:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{refused} ({reason}); give a model's folder or its name on the hub.") from error
