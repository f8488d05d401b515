"""Folders of runs and evaluations: one process at a time, one configuration, and nothing removed that another wrote.

Invariants:
    A folder is a run's if it holds a slim_rl configuration, or nothing that a run would write. Its dialogue log is inside.
    One process at a time works in a folder: it locks it (of torchrun's processes, rank 0 does). The kernel releases the lock when it ends.
    Only files that a run writes are removed, from its own folder, once the new run is known to work.
    A log of held-out games has the settings that it was played with next to it, and is refused to others (`record_settings`).
"""

import json
import os
import platform
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.config.section import GONE, without_gone
from slim_rl.config.trainers import MAY_CHANGE, lookup, read_keys
from slim_rl.errors import ConfigError, SlimError, SlimWarning
from slim_rl.files import disk_errors, sweep, write_atomically
from slim_rl.formats import without_passwords

MARKER = ".slim-rl-run"  # in the folder of a run or an evaluation, with the process that works in it
# In a run's folder, next to its log
WRITTEN = ("config.yaml", "checkpoints", "metrics.jsonl", "model", "spend", "tensorboard")
_NAMED = 4  # keys in one sentence
_OTHERS = ("arms", "warmstart", "output_dir")  # settings of other runs, and where this one's folder lies


class RunFolder:
    """Folder of one run.

    Args:
        path: None: `config.output_dir`/`config.name`.

    Attributes:
        logs: folder of its dialogue log.
    """

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self.config, self.path = config, path or config.run_dir
        self.logs = self.path / "logs"
        self._use = f"The run '{config.name}' in {self.path}", "give this one another name (--set name=...) or folder"

    def check(self, fresh: bool = False) -> None:
        """Raises SlimError if this run could not start or continue here; changes nothing."""
        path, written = self.path, [self.path / name for name in WRITTEN]
        with disk_errors("run's folder", path):
            if configuration(path / "config.yaml") is None and (
                path.is_file() or any(each.exists() for each in written)
            ):
                raise ConfigError(
                    f"{path} holds files but no configuration of a run; give this run another name (--set name=...) or output_dir."
                )
            if _lock_of(path).exists():
                with _locked(path, *self._use):
                    pass
            for key in read_keys(self.config):
                value = lookup(self.config, key)
                if value and any(Path(value).resolve().is_relative_to(one.resolve()) for one in (*written, self.logs)):
                    raise ConfigError(
                        f"{key}={value} is a file that the run '{self.config.name}' itself writes; give the run another name "
                        "(--set name=...)."
                    )
            check_same(path / "config.yaml", self.config, fresh)

    @contextmanager
    def begin(self, fresh: bool = False, prepare: Callable[[], object] | None = None, **others: Any) -> Iterator[None]:
        """Locks the folder within the block, writes the configuration, and removes an earlier run's files if `fresh`.

        Args:
            prepare: function called before the configuration is written, which may raise.
            others: sections of other programs for the configuration's file.

        Raises:
            SlimError: as `check`; or another process works on the run, or the disk refuses.
        """
        self.check(fresh)
        with lock_folder(self.path, *self._use):
            if fresh:
                for path in sorted(self._written(), key=(self.path / "config.yaml").__eq__):  # it says whose they are
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            check_same(self.path / "config.yaml", self.config)  # another process may have started the run since
            if prepare is not None:
                prepare()
            with disk_errors("run's folder", self.path):
                for path in self._written():
                    sweep(path)
                self.config.write(self.path / "config.yaml", **others)
            yield

    def _written(self) -> list[Path]:
        """Returns the files that this run writes; an evaluation may have logged next to its own log."""
        logs = (path for form in ("train*.jsonl", "eval-[0-9]*.jsonl") for path in self.logs.glob(form))
        return [*(self.path / name for name in WRITTEN), *logs]


@contextmanager
def lock_folder(folder: Path, what: str, otherwise: str) -> Iterator[None]:
    """Locks a folder, and writes this process to its marker.

    Args:
        what, otherwise: subject of the message for another process (such as "The run 'a'"), and what that can do instead of waiting.

    Raises:
        SlimError: another process holds the lock, or the disk refuses.
    """
    with disk_errors("folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, what, otherwise):
        with disk_errors("folder", folder):
            write_atomically(folder / MARKER, f"process {os.getpid()} on {platform.node()}\n")
        yield


@contextmanager
def _locked(folder: Path, what: str, otherwise: str) -> Iterator[None]:
    lock = FileLock(_lock_of(folder), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        holder = "another process"
        with suppress(OSError):
            holder = (folder / MARKER).read_text(encoding="utf-8", errors="replace").strip()
        raise SlimError(f"{what} is in use by {holder}; wait until that ends, or {otherwise}.") from error
    except (OSError, NotImplementedError) as error:  # some network file systems have no locks
        warnings.warn(f"{folder} cannot be locked ({error}): start only one process per folder.", SlimWarning, 4)
    try:
        yield
    finally:
        lock.release()


def _lock_of(folder: Path) -> Path:
    return folder / f"{MARKER}.lock"


def check_same(path: Path, config: Config, fresh: bool = False) -> None:
    """Raises ConfigError if the configuration in `path` differs in a fixed key."""
    if fresh or not path.exists():
        return
    began, local = configuration(path), config.train.backend == "trl"
    over = "start over with --fresh" if local else "remove that folder to start over"
    if began is None:
        raise ConfigError(f"{path} is not a readable configuration; {over}.")
    if gone := without_gone(began)[1]:
        more = f", and {len(gone) - 1} more," if len(gone) > 1 else ""
        raise ConfigError(
            f"The run '{config.name}' in {path.parent} began with another version of slim_rl, whose key {gone[0]}{more} is gone "
            f"({GONE[gone[0]]}); give this one another name (--set name=...) or folder, or {over}."
        )
    named = config.train.backend != "slime"  # there the folder names the run, and may be moved
    if differ := [key for key in _changed(began, config) if named or key != "name"]:
        raise ConfigError(
            f"The run '{config.name}' in {path.parent} began with other values of {', '.join(differ)}; give this one another name (--set "
            f"name=...) or folder, or {over}."
        )


def record_settings(log: Path, config: Config, decides: Sequence[str], weights: str | None, otherwise: str) -> None:
    """Writes the settings that a log of held-out games is played with next to it (`log`.yaml).

    Args:
        decides: keys, or prefixes of keys, that decide what is played.
        weights: digest of the model's weights; None if they cannot be read.
        otherwise: fix for a log of other settings, in the message.

    Raises:
        ConfigError: the log was played with other settings, or with other weights of the same name.
    """
    path = log.with_suffix(".yaml")
    if log.exists() and log.stat().st_size and (began := configuration(path)) is not None:
        before = (read_yaml(path).get("weights") or {}).get("sha256")
        differ = [key for key in _changed(began, config) if key.startswith(tuple(decides))]
        if weights and before:  # a folder may be moved
            differ = [key for key in differ if key != "policy.model"] + ["the model's weights"] * (weights != before)
        if differ:
            more = f" and {len(differ) - _NAMED} more" if len(differ) > _NAMED else ""
            raise ConfigError(
                f"{log} was played with other values of {', '.join(differ[:_NAMED])}{more}; {otherwise}, or remove it to play its games again."
            )
    with disk_errors("settings of a log", path):
        config.write(path, passwords=False, weights={"sha256": weights})


def configuration(path: Path) -> dict[str, Any] | None:
    """Returns the configuration in a file; None if the file holds none."""
    try:
        data = read_yaml(path)
    except ConfigError:
        return None
    section = data.get(ROOT_KEY) if isinstance(data, dict) else None
    return section if isinstance(section, dict) else None


def _changed(began: dict[str, Any], config: Config) -> list[str]:
    """Returns the keys whose values differ from those of `began`, except keys that may change."""
    with suppress(ConfigError):  # a key that an older version lacked has its default
        began = parse_config(began).model_dump(mode="json")
    shown = (
        json.loads(without_passwords(json.dumps(each, default=str))) for each in (began, config.model_dump(mode="json"))
    )
    return sorted(
        key
        for key in _differences(*shown)
        if re.sub(r"^partner\.mixture\.[^.]+", "partner", key) not in MAY_CHANGE
        and key.split(".")[0] not in _OTHERS
        and ".openai.prices" not in key  # prices change no reply
    )


def _differences(a: Any, b: Any, prefix: str = "") -> set[str]:
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {prefix}
    keys = a.keys() | b.keys()
    return set().union(*(_differences(a.get(k), b.get(k), f"{prefix}.{k}" if prefix else k) for k in keys))
