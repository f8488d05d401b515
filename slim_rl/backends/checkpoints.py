"""Checkpoints: the one that a run starts from, and those that it writes."""

from pathlib import Path

from slim_rl import bundled
from slim_rl.backends import say
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import read_object
from slim_rl.policies import check_model_name

LAST_WHOLE = "latest_checkpointed_iteration.txt"  # Megatron's and verl's last file of a save: the checkpoint's number


def locate_model(model: str, download: bool) -> Path:
    """Returns the checkpoint's folder: a local path unchanged, or the hub cache's folder of a hub name.

    Args:
        model: a folder, ``owner/name``, or a bare Qwen name such as ``Qwen3-4B``.
        download: fetch the whole checkpoint; otherwise its config.json alone, and without the hub return the name.

    Raises:
        ConfigError: neither a folder nor a name the hub knows.
        DataError: the checkpoint brings its own code, which slime would run.
    """
    path = Path(bundled.model(model)).expanduser()
    if not path.is_dir():
        name = f"Qwen/{model}" if model.startswith("Qwen") and "/" not in model else model
        check_model_name(name, "MODEL")
        try:
            import huggingface_hub

            fetched = None if download else huggingface_hub.hf_hub_download(name, "config.json")
            path = Path(fetched).parent if fetched else Path(huggingface_hub.snapshot_download(name))
        except Exception as error:  # the hub's client raises many kinds; all of them mean that there is no model
            if not download and isinstance(error, huggingface_hub.errors.LocalEntryNotFoundError):
                say(f"the hub could not be reached to look up {name}; a start needs it, or the model in its cache")
                return Path(name)
            raise ConfigError(
                f"MODEL {model} is not a folder here and cannot be downloaded from the hub ({error}); give a path."
            ) from error
    if read_object(path / "config.json").get("auto_map"):
        raise DataError(f"{path} names the model's own code (auto_map), which slime would run; choose another.")
    return path.resolve()


def numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """Returns the folders `folder`/`prefix`N by N."""
    found = {path.name.removeprefix(prefix): path for path in folder.glob(f"{prefix}*") if path.is_dir()}
    return {int(number): path for number, path in found.items() if number.isascii() and number.isdigit()}


def last_whole(folder: Path) -> int | None:
    """Returns the number of the last complete checkpoint of slime or verl; None without one."""
    try:
        return int((folder / LAST_WHOLE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def whole_ones(folder: Path, prefix: str) -> dict[int, Path]:
    """Returns the complete checkpoints `folder`/`prefix`N of slime or verl by N; a later one was still being written."""
    last = last_whole(folder)
    return {number: path for number, path in numbered(folder, prefix).items() if last is not None and number <= last}
