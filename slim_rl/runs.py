"""Folders of a run and of its log: owner, lock and removal.

Invariants:
    A folder is a run's if it holds the marker, or a slim_rl configuration, or nothing that a run would write.
    The log's folder has one owner, a run or an evaluation, and is refused to any other.
    One process at a time works on a run: it locks both folders (of torchrun's processes, rank 0 does).
    Only files that a run writes are removed, from its own folder, once the new run is known to work.
    On a cluster the launch claims the run's folder, which holds the log (`claimed`); it is locked while the job runs.
    A log of held-out games has the settings that it was played with next to it, and is refused to others (`claim_log`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.config.section import current_keys
from slim_rl.config.trainers import MAY_CHANGE, lookup
from slim_rl.errors import ConfigError
from slim_rl.files import disk_errors, sweep
from slim_rl.formats import without_passwords
from slim_rl.locks import check_free, held, owner_of

MARKER = ".slim-rl-run"
LOG_MARKER = ".slim-rl-log"  # in the folder of a run's log, with the run's id
EVALUATION_MARKER = ".slim-rl-evaluation"
WRITTEN = ("config.yaml", "checkpoints", "metrics.jsonl", "model", "spend", "tensorboard")  # in a run's folder
_READ = (  # keys of files and folders that a run reads
    *("policy.model", "data.train", "data.eval"),
    *("partner.replay", "partner.openai.prompt", "partner.openai.cassette"),
)
_LOGS = re.compile(r"(train|eval-\d+)(-\d+)?\.jsonl")  # in a log's folder
_FOLLOW = ("name", "output_dir", "log.dir")  # set by the run's folder on slime, which may be moved
_ANOTHER_FOLDER = "give this one another name (--set name=...) or, on slime, another SAVE_DIR"


class RunFolder:
    """Folder of one run, with the folder of its log.

    Attributes:
        path: `config.output_dir`/`config.name`.
        logs: `config.log.dir`/`config.name`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.path, self.logs = config.run_dir, config.log.dir / config.name

    def check(self, fresh: bool = False) -> None:
        """Raises SlimError if this run could not start or continue here; changes nothing."""
        with disk_errors("run's folder", self.path):
            if not self._is_ours():
                raise ConfigError(
                    f"{self.path} holds files but is not marked as a run's folder; give this run another name (--set name=...) "
                    "or output_dir."
                )
            check_free(self.path / MARKER, self._use)
            check_free(self.logs / LOG_MARKER, self._use)
            self._check_log(owner_of(self.path / MARKER))
            self._check_inputs()
            if not fresh:
                check_same(self.path / "config.yaml", self.config)

    @contextmanager
    def working(self, fresh: bool = False) -> Iterator[None]:
        """Marks and locks the folders, writes the configuration, and removes an earlier run's files if `fresh`.

        Raises:
            SlimError: as `check`; or another process works on the run, or the disk refuses.
        """
        self.check(fresh)
        marker, log = self.path / MARKER, self.logs / LOG_MARKER
        run = owner_of(marker) or uuid.uuid4().hex
        with (
            held(marker, "run's folder", self._use, run),
            held(log, "log's folder", self._use, run, check=lambda: self._check_log(run)),
        ):
            with disk_errors("run's folder", self.path):
                self._sweep()
                if fresh:
                    self._empty()
                check_same(self.path / "config.yaml", self.config)  # another process may have started the run since
                self.config.write(self.path / "config.yaml")
            yield

    def _check_log(self, run: str) -> None:
        """Raises ConfigError if the log's folder has another owner: another run of this name, or one whose folder was removed.

        Args:
            run: id of this run; empty before its first start.
        """
        owner = owner_of(self.logs / LOG_MARKER)
        unmarked = not owner and configuration(self.path / "config.yaml") is None and bool(_logs(self.logs))
        if (owner and owner != run) or unmarked or (self.logs / EVALUATION_MARKER).exists():
            raise ConfigError(
                f"log.dir={self.config.log.dir}: {self.logs} holds the dialogue log of another run or evaluation, or of a run whose "
                "folder was removed. Give this run another name (--set name=...) or log.dir, or move that folder away."
            )

    def _is_ours(self) -> bool:
        if (self.path / MARKER).exists() or configuration(self.path / "config.yaml") is not None:
            return True
        a_file = self.path.exists() and not self.path.is_dir()
        return not a_file and not any((self.path / name).exists() for name in WRITTEN)

    def _check_inputs(self) -> None:
        """Raises ConfigError if the run would write, or `fresh` remove, a file that it reads."""
        for key in _READ:
            if (value := lookup(self.config, key)) is None:
                continue
            path = Path(value).resolve()
            inside = any(path.is_relative_to((self.path / name).resolve()) for name in WRITTEN)
            if inside or (path.parent == self.logs.resolve() and _LOGS.fullmatch(path.name)):
                raise ConfigError(
                    f"{key}={value} is a file that the run '{self.config.name}' itself writes; give the run another name "
                    "(--set name=...)."
                )

    @property
    def _use(self) -> tuple[str, str]:
        """Returns the subject of a lock's message, and what to do instead of waiting."""
        return f"The run '{self.config.name}' in {self.path}", "give this one another name (--set name=...)"

    def _sweep(self) -> None:
        for path in (*(self.path / name for name in WRITTEN), self.config.data.train, self.config.data.eval):
            if path is not None:
                sweep(path)
        for path in _logs(self.logs):
            sweep(path)

    def _empty(self) -> None:
        """Removes the files that a run of this name wrote, and nothing else."""
        for name in WRITTEN:
            path = self.path / name
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
        for path in _logs(self.logs):
            if _is_log_of(path, self.config.name):
                path.unlink()


@contextmanager
def evaluating(folder: Path) -> Iterator[None]:
    """Locks a folder for the logs of an evaluation.

    Raises:
        SlimError: another process evaluates into it, the log of a run is in it, or the disk refuses the lock.
    """
    otherwise = "name another folder (--output ...)"
    if (folder / LOG_MARKER).exists():
        raise ConfigError(f"{folder} holds the dialogue log of a run; {otherwise}.")
    with held(folder / EVALUATION_MARKER, "evaluation's folder", (f"The evaluation in {folder}", otherwise)):
        yield


def locked(folder: Path, name: str) -> AbstractContextManager[None]:
    """Locks the folder of a run on a cluster. Raises SlimError as `claimed` does."""
    return held(folder / MARKER, "run's folder", (f"The run '{name}' in {folder}", _ANOTHER_FOLDER))


@contextmanager
def claimed(folder: Path, config: Config, prepare: Callable[[], object], **others: Any) -> Iterator[None]:
    """Locks the folder of a run on a cluster within the block, and writes the configuration there.

    Args:
        prepare: function called before the configuration is written, which may raise.
        others: sections of other programs for the same file.

    Raises:
        SlimError: another process works on the run, the run began with another configuration, or the disk refuses.
    """
    with locked(folder, config.name):
        check_same(folder / "config.yaml", config)
        prepare()
        with disk_errors("run's folder", folder):
            config.write(folder / "config.yaml", **others)
        yield


def check_same(path: Path, config: Config) -> None:
    """Raises ConfigError if the configuration in `path` differs in a fixed key, or a cluster's log is elsewhere.

    On a cluster the log must be inside the run's folder, since other folders may hold another run's.
    """
    backend, folder = config.train.backend, os.path.normpath(path.parent)
    if backend != "trl" and not Path(os.path.normpath(log_folder_of(path.parent, config))).is_relative_to(folder):
        raise ConfigError(
            f"log.dir={config.log.dir} is outside {folder}, where a run on {backend} keeps its log; name a folder in it, such as "
            "--set log.dir=dialogues."
        )
    if not path.exists():
        return
    began, local = configuration(path), config.train.backend == "trl"
    if began is None:
        over = "start over with --fresh" if local else "remove it to start over"
        raise ConfigError(f"{path} is not a readable configuration; {over}.")
    moved = _FOLLOW if config.train.backend == "slime" else ()
    if differ := [key for key in _changed(began, config) if key not in moved]:
        otherwise = (
            "give this one another name (--set name=...) or start over with --fresh"
            if local
            else f"{_ANOTHER_FOLDER}, or remove that folder to start over"
        )
        raise ConfigError(
            f"The run '{config.name}' in {path.parent} began with other values of {', '.join(differ)}; {otherwise}."
        )


def claim_log(log: Path, config: Config, decides: Sequence[str], weights: str | None, otherwise: str) -> None:
    """Writes the settings that a log of held-out games is played with next to it (`log`.yaml).

    Args:
        decides: keys, or prefixes of keys, that decide what is played.
        weights: digest of the model's weights; None if they cannot be read.
        otherwise: fix for a log of other settings, in the message.

    Raises:
        ConfigError: the log was played with other settings, or with other weights of the same name.
    """
    path = log.with_suffix(".yaml")
    if log.exists() and (began := configuration(path)) is not None:
        before = (read_yaml(path).get("weights") or {}).get("sha256")
        differ = [key for key in _changed(began, config) if key.startswith(tuple(decides))]
        if weights and before:  # a folder may be moved
            differ = [key for key in differ if key != "policy.model"] + ["the model's weights"] * (weights != before)
        if differ:
            raise ConfigError(
                f"{log} was played with other values of {', '.join(differ)}; {otherwise}, or remove it to play its games again."
            )
    with disk_errors("settings of a log", path):
        config.write(path, passwords=False, weights={"sha256": weights})


def _changed(began: dict[str, Any], config: Config) -> list[str]:
    """Returns the keys whose values differ from those of `began`, except keys that may change."""
    with suppress(ConfigError):  # a key that an older version lacked has its default
        began = parse_config(began).model_dump(mode="json")
    return sorted(
        key
        for key in _differences(_shown(began), _shown(config.model_dump(mode="json"))) - MAY_CHANGE
        if ".openai.prices" not in key  # prices change no reply
    )


def _shown(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config without passwords of URLs, as in records."""
    return dict(json.loads(without_passwords(json.dumps(config, default=str))))


def log_folder_of(folder: Path, config: Config) -> Path:
    """Returns the folder of a run's dialogue logs; on a cluster it is inside the run's folder."""
    return config.log.dir / config.name if config.train.backend == "trl" else folder / config.log.dir


def configuration(path: Path) -> dict[str, Any] | None:
    """Returns the configuration in a file, with today's keys; None if the file holds none."""
    try:
        data = read_yaml(path)
    except ConfigError:
        return None
    section = data.get(ROOT_KEY) if isinstance(data, dict) else None
    return current_keys(section) if isinstance(section, dict) else None


def _differences(a: Any, b: Any, prefix: str = "") -> set[str]:
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {prefix}
    keys = a.keys() | b.keys()
    return set().union(*(_differences(a.get(k), b.get(k), f"{prefix}.{k}" if prefix else k) for k in keys))


def _logs(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if _LOGS.fullmatch(path.name)]
    except OSError:
        return []


def _is_log_of(path: Path, name: str) -> bool:
    """Returns True if the file is a dialogue log of the run, or empty."""
    first = next(iter(jsonl.scan(path)), None)
    return first is None or first.torn or (isinstance(first.data, dict) and first.data.get("run") == name)
