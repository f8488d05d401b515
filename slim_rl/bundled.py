"""Files that come with slim_rl: configs, examples, shell scripts, and the small models that local runs start from.

Invariants:
    A user's file of the same name is used instead.
    The files are read in place: in the wheel's `slim_rl/_bundled`, or at the root of a checkout.

So `slim-rl train matching_local` and `data/warmstart` in a config work in a checkout and in an empty folder. `slim-rl lab init`
copies the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from slim_rl.errors import DataError
from slim_rl.files import replacing

_PACKAGED = Path(__file__).parent / "_bundled"
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1]  # parent of the folders below
CONFIGS = ("configs", "examples", "examples/guess_who")  # folders of the configs that have a short name
MODELS = ("data/warmstart", "data/warmstart_selfplay", "data/asking_start")
COPIED = ("configs", "examples", "scripts")  # folders that `slim-rl lab init` copies
EXPERIMENT = "examples/experiment"


@cache
def names() -> tuple[str, ...]:
    """Returns the short names of the configs, such as `matching_local`."""
    return tuple(path.stem for folder in CONFIGS for path in sorted((ROOT / folder).glob("*.yaml")))


def config_file(path: str | Path) -> Path:
    """Returns the file of a config, named by its path or short name; any other `path` unchanged."""
    path = Path(path)
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


def copy_to(folder: Path) -> list[Path]:
    """Copies configs, examples and scripts into `folder`, and returns the new files.

    Raises DataError, and copies nothing, if a file exists there and differs.
    """
    return _copied([(ROOT / name, folder / name) for name in COPIED])


def copy_experiment(folder: Path) -> list[Path]:
    """Copies the files of a new experiment into `folder`, in the same way."""
    return _copied([(ROOT / EXPERIMENT, folder)])


def _copied(folders: Sequence[tuple[Path, Path]]) -> list[Path]:
    pairs = [
        (path, to / path.relative_to(of))
        for of, to in folders
        for path in sorted(of.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]
    for ours, theirs in pairs:
        if theirs.exists() and theirs.read_bytes() != ours.read_bytes():
            raise DataError(f"{theirs} exists and differs from the bundled file: name another folder, or remove it.")
    new = [(ours, theirs) for ours, theirs in pairs if not theirs.exists()]
    for ours, theirs in new:
        with replacing(theirs) as copy:  # another `init` of the same folder may read it at any time
            shutil.copyfile(ours, copy)
            copy.chmod(copy.stat().st_mode | (0o111 if theirs.suffix == ".sh" else 0))
    return [theirs for _, theirs in new]
