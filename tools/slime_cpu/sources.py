"""slime's and Megatron-LM's sources, as their authors publish them, at the commits that this project is checked with.

    SLIME_DIR, MEGATRON_DIR   checkouts; Megatron's has slime's patch, as in slime's container
    ../shared/upstream        archives beside the project: unpacked once, into build/upstream
    otherwise                 cloned by git, once, into build/upstream
    SLIME_GIT, MEGATRON_GIT   a mirror to clone, or another commit: URL@COMMIT

Nothing of them is changed, but that Megatron gets the patch which slime's own Dockerfile applies. A folder appears whole or not at all.
"""

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from slim_rl.backends import say
from slim_rl.errors import SlimError

_HOME = Path(__file__).parents[2]
_ARCHIVES = _HOME.parent / "shared" / "upstream"
_UNPACKED = _HOME / "build" / "upstream"
_PINNED = {
    "slime": "https://github.com/THUDM/slime@624b824a8",
    "megatron": "https://github.com/NVIDIA/Megatron-LM@1dcf0dafa884ad52ffb243625717a3471643e087",
}
_PATCH = "docker/patch/latest/megatron.patch"


def find(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """slime, and a Megatron that has its patch. Raises SlimError if they are not here and cannot be cloned."""
    environment = os.environ if environment is None else environment
    named = environment.get("SLIME_DIR"), environment.get("MEGATRON_DIR")
    slime = Path(named[0]) if named[0] else _main("slime", environment)
    return slime.absolute(), Path(named[1]).absolute() if named[1] else _patched(slime, environment)


def here(environment: Mapping[str, str] | None = None) -> bool:
    """Whether they can be had without a network."""
    environment = os.environ if environment is None else environment
    return all(
        environment.get(f"{name.upper()}_DIR") or any(_archives(name)) or _clone(name, environment).is_dir()
        for name in _PINNED
    )


def unpacked(name: str) -> list[Path]:
    """The folders that lie in the archives of that name, in the order of their names: a commit before a release."""
    missing = []
    for archive in _archives(name):

        def unpack(fresh: Path, archive: Path = archive) -> None:
            with tarfile.open(archive) as packed:
                packed.extractall(fresh, filter="data")

        folder = _once(_UNPACKED / archive.name.removesuffix(".tar.gz"), unpack)
        missing += [path for path in folder.iterdir() if path.is_dir()]
    return missing


def _archives(name: str) -> list[Path]:
    return sorted(_ARCHIVES.glob(f"{name}-*.tar.gz"))


def _remote(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Where they are cloned from, and the commit."""
    url, _, commit = (environment.get(f"{name.upper()}_GIT") or _PINNED[name]).rpartition("@")
    return url, commit


def _at(name: str, environment: Mapping[str, str]) -> str:
    """The sources at the commit that counts, in a folder's name."""
    return f"{name}-{_remote(name, environment)[1][:7]}"


def _clone(name: str, environment: Mapping[str, str]) -> Path:
    return _UNPACKED / f"{_at(name, environment)}-cloned"


def _main(name: str, environment: Mapping[str, str]) -> Path:
    """The sources at the commit that counts: the archive of it, or a clone."""
    for folder in unpacked(name):
        if folder.parent.name == _at(name, environment):
            return folder

    def clone(fresh: Path) -> None:
        url, commit = _remote(name, environment)
        say(f"cloning {url}")
        _run("git", "clone", "--quiet", "--filter=blob:none", "--no-checkout", url, str(fresh))
        _run("git", "-C", str(fresh), "checkout", "--quiet", commit)

    return _once(_clone(name, environment), clone)


def _patched(slime: Path, environment: Mapping[str, str]) -> Path:
    """A copy of Megatron with the patch of this slime."""
    megatron, changes = _main("megatron", environment), (slime / _PATCH).absolute()
    if not changes.is_file():
        raise SlimError(f"{slime} has no {_PATCH}: set MEGATRON_DIR to a Megatron-LM that has slime's patch.")

    def patch(fresh: Path) -> None:
        shutil.copytree(megatron / "megatron", fresh / "megatron")
        alone = os.environ | {"GIT_DIR": str(fresh / "none")}  # a repository above would have git apply nothing
        _run("git", "apply", str(changes), cwd=fresh, env=alone)

    number = zlib.crc32(changes.read_bytes())  # other versions of slime have other patches
    return _once(_UNPACKED / f"{_at('megatron', environment)}-patched-{number:08x}", patch)


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made whole if it is not there."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            make(fresh)
            with contextlib.suppress(OSError):  # another process was first
                fresh.rename(folder)
    return folder


def _run(*command: str, **options: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SlimError(
            f"'{' '.join(command[:3])} …' failed ({done.stderr.strip() or done.returncode}): give slime's and Megatron's sources by "
            "SLIME_DIR and MEGATRON_DIR."
        )
