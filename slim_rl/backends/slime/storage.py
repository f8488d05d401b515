"""Where a run is kept: on a disk that outlives the container."""

from __future__ import annotations

import os
from pathlib import Path

from slim_rl.errors import ConfigError


def check_save_dir(folder: Path, nodes: int, dry_run: bool, mounts: str | None = None) -> str:
    """A warning if what is saved in `folder` would be gone with the container, or nothing.

    Args:
        mounts: the text of /proc/self/mountinfo; None: this machine's, where there is one.

    Raises:
        ConfigError: it would, and the run has several nodes (a dry run saves nothing and only warns).
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    if file_system(folder, mounts) != "overlay":
        return ""
    wrong = f"SAVE_DIR {folder} lies on the container's own layer and is gone with the container"
    if nodes > 1 and not dry_run:
        raise ConfigError(
            f"{wrong}, and other nodes do not see it: mount a shared disk and set SAVE_DIR to a folder on it."
        )
    return f"{wrong}: mount a disk and set SAVE_DIR to a folder on it."


def file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that holds `folder`, which need not exist yet, by the text of a mountinfo file."""
    path = os.path.realpath(folder)
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best:  # the last of several is on top
            best, kind = len(point), right.split(" ")[0]
    return kind
