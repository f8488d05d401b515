"""Engines that sample the policy's turns, behind one protocol (`dialogue.players.Policy`)."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.errors import ConfigError, DataError, nearest
from slim_rl.files import read_object
from slim_rl.runs import configuration


def check_model_name(name: str, key: str = "policy.model") -> None:
    """Checks a model's name: a folder, one that comes with slim_rl, or what may be a name on the hub.

    Args:
        key: config key or option that names the model, for the message.

    Raises:
        ConfigError: the folder does not exist.
    """
    path = Path(name)
    if path.exists() or Path(bundled.model(name)).exists():
        return
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or ("/" in name and path.parent.is_dir()):
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, beside)
        meant = (
            f"Did you mean {path.parent / near}?" if near else "Create it, or give a hub name such as Qwen/Qwen3-0.6B."
        )
        raise ConfigError(f"{key} '{name}' is not a folder here. {meant}")


def model_of(name: str, key: str) -> str:
    """Returns the model's folder for a run's folder, and any other name unchanged.

    Args:
        key: option or key that names it, for the message.

    Raises:
        ConfigError: the run has no model yet.
    """
    folder = Path(name)
    if (folder / "config.json").exists() or configuration(folder / "config.yaml") is None:
        return name
    if not (folder / "model" / "config.json").is_file():
        raise ConfigError(
            f"{key}={name} is the folder of a run without a model: train it to its end, or name a checkpoint."
        )
    return str(folder / "model")


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
