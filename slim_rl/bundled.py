"""Files that come with slim_rl: configs, examples, shell scripts, and the small models that local runs start from.

Invariants:
    A user's file of the same name is used instead.
    The files are read in place: in the wheel's `slim_rl/_bundled`, or at the root of a checkout.

So `slim-rl train matching_local` and `data/warmstart` in a config work in a checkout and in an empty folder. `slim-rl lab init`
copies the files.
"""

import shutil
from functools import cache
from pathlib import Path

from slim_rl.errors import DataError

_PACKAGED = Path(__file__).parent / "_bundled"
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1]  # parent of the folders below
CONFIGS = ("configs", "examples", "examples/guess_who")  # folders of the configs that have a short name
MODELS = ("data/warmstart", "data/warmstart_selfplay", "data/asking_start")
COPIED = ("configs", "examples", "scripts")  # folders that `slim-rl lab init` copies


@cache
def names() -> tuple[str, ...]:
    """Returns the short names of the configs, such as `matching_local`."""
    return tuple(path.stem for folder in CONFIGS for path in sorted((ROOT / folder).glob("*.yaml")))


def config_file(path: str | Path) -> Path:
    """Returns the file of a config from its path, run's folder or short name; any other `path` unchanged."""
    path = Path(path)
    if (of_run := path / "config.yaml").is_file():
        return of_run
    if path.is_file() or path.is_absolute():
        return path
    for folder in CONFIGS:
        ours = ROOT / folder / (path.name if path.suffix else f"{path.name}.yaml")
        if path.parent in (Path(), Path(folder)) and ours.is_file() and path.suffix in ("", ".yaml"):
            return ours
    return path


def model(name: str) -> str:
    """Returns the folder of a bundled model, unless the working folder has one of that name; any other name unchanged."""
    ours = str(Path(name)) in MODELS and not Path(name).exists()
    return str(ROOT / name) if ours and (ROOT / name).is_dir() else name


def copy(source: str, folder: Path) -> list[Path]:
    """Copies a bundled folder into `folder`, and returns the new files.

    Raises DataError, and copies nothing, if one of them exists.
    """
    files = {folder / path.relative_to(ROOT / source): path for path in sorted((ROOT / source).rglob("*"))}
    files = {new: path for new, path in files.items() if path.is_file() and path.suffix != ".pyc"}
    if exists := [new for new in files if new.exists()]:
        raise DataError(f"{exists[0]} exists: name another folder, or remove it.")
    for new, path in files.items():
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new)
        new.chmod(0o755 if new.suffix == ".sh" else 0o644)
    return list(files)
