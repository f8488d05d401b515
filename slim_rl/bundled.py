"""What comes with slim_rl besides its code: configs, examples, the shell scripts, and the small models that local runs start from.

    a file of the user's, as named, goes before one of ours
    ours are read where they lie: in the wheel's `slim_rl/_bundled`, in a checkout at its root

So the same commands work in a checkout and in an empty folder: `slim-rl train matching_local`, or by its path there,
`configs/matching_local.yaml`; and `data/warmstart` in a config is found in both. `slim-rl lab init` copies them out to be changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from slim_rl.errors import DataError
from slim_rl.files import replacing

_PACKAGED = Path(__file__).parent / "_bundled"
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1]  # holds the folders below
CONFIGS = ("configs", "examples", "examples/guess_who")  # folders of configs, which are known by their names too
MODELS = ("data/warmstart", "data/warmstart_selfplay", "data/asking_start")
COPIED = ("configs", "examples", "scripts")  # what a user may want to change
EXPERIMENT = "examples/experiment"


@cache
def names() -> tuple[str, ...]:
    """The configs' names, such as `matching_local`; each can be given in place of a path."""
    return tuple(path.stem for folder in CONFIGS for path in sorted((ROOT / folder).glob("*.yaml")))


def config_file(path: str | Path) -> Path:
    """The file of a config that is given by its path or its name; `path` unchanged if neither is there."""
    given = Path(path)
    if given.is_file() or given.is_absolute():
        return given
    for folder in CONFIGS:
        ours = ROOT / folder / (given.name if given.suffix else f"{given.name}.yaml")
        if given.parent in (Path(), Path(folder)) and ours.is_file() and given.suffix in ("", ".yaml"):
            return ours
    return given


def model(name: str) -> str:
    """The folder of a model that comes with slim_rl, where there is none of that name here; else `name` unchanged."""
    ours = str(Path(name)) in MODELS and not Path(name).exists()
    return str(ROOT / name) if ours and (ROOT / name).is_dir() else name


def copy_to(folder: Path) -> list[Path]:
    """Copies configs, examples and scripts into `folder`, and returns the new files.

    Raises DataError, and copies nothing, if one of them is there and differs.
    """
    return _copied([(ROOT / name, folder / name) for name in COPIED])


def copy_experiment(folder: Path) -> list[Path]:
    """Copies the files that an experiment of one's own begins with into `folder`, in the same way."""
    return _copied([(ROOT / EXPERIMENT, folder)])


def _copied(folders: Sequence[tuple[Path, Path]]) -> list[Path]:
    found = [
        (path, to / path.relative_to(of)) for of, to in folders for path in sorted(of.rglob("*")) if path.is_file()
    ]
    pairs = [(ours, theirs) for ours, theirs in found if ours.suffix != ".pyc"]
    for ours, theirs in pairs:
        if theirs.exists() and theirs.read_bytes() != ours.read_bytes():
            raise DataError(f"{theirs} exists and is another file: name another folder, or remove it.")
    new = [(ours, theirs) for ours, theirs in pairs if not theirs.exists()]
    for ours, theirs in new:
        with replacing(theirs) as whole:  # nor does another `init` of the same folder ever read half of it
            shutil.copyfile(ours, whole)
            whole.chmod(whole.stat().st_mode | (0o111 if theirs.suffix == ".sh" else 0))
    return [theirs for _, theirs in new]
