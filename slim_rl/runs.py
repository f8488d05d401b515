"""Folders of a run and of its log: which run they belong to, which process may write to them, and what may be removed.

Invariants:
    A folder is a run's if it holds our marker, or a configuration of ours, or nothing that a run would write.
    The log's folder has one owner, a run or an evaluation; it is refused to any other, so that no log is emptied or counted as another's.
    One process at a time works on a run: both folders are locked meanwhile (torchrun's processes are one run, and rank 0 locks).
    Only files that a run itself writes are ever removed, from a folder that is the run's, once the new run is known to work.
    On a cluster the launch claims the run's folder, which has the log in it (`claimed`), and it is locked while the job runs.
    A log of held-out games has beside it what it was played by, and counts for nothing else (`claim_log`).
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
WRITTEN = ("config.yaml", "checkpoints", "metrics.jsonl", "model", "spend", "tensorboard")  # by a run, in its folder
_READ = (  # by a run, where these keys say
    *("policy.model", "data.train", "data.eval"),
    *("partner.replay", "partner.openai.prompt", "partner.openai.cassette"),
)
_LOGS = re.compile(r"(train|eval-\d+)(-\d+)?\.jsonl")  # by a run, in its log's folder
_FOLLOW = ("name", "output_dir", "log.dir")  # from the run's folder on slime, which may be moved
_ANOTHER_FOLDER = "give this one another name (--set name=...) or, on slime, another SAVE_DIR"


class RunFolder:
    """The folder of one run and that of its log.

    Attributes:
        path: `config.output_dir`/`config.name`.
        logs: `config.log.dir`/`config.name`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.path, self.logs = config.run_dir, config.log.dir / config.name

    def check(self, fresh: bool = False) -> None:
        """Changes nothing. Raises SlimError if this run could not start or continue here."""
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
        """Marks, locks and claims the folder for the configuration, after removing what an earlier run left if `fresh`.

        Raises:
            SlimError: as `check`; or another process works on the run, or the disk would not take it.
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
                check_same(self.path / "config.yaml", self.config)  # another start may have begun it since
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
        """What a run writes, and `fresh` removes, must not be what it reads."""
        for key in _READ:
            if (value := lookup(self.config, key)) is None:
                continue
            path = Path(value).resolve()
            inside = any(path.is_relative_to((self.path / name).resolve()) for name in WRITTEN)
            if inside or (path.parent == self.logs.resolve() and _LOGS.fullmatch(path.name)):
                raise ConfigError(
                    f"{key} is {value}, which the run '{self.config.name}' itself writes; give the run another name "
                    "(--set name=...)."
                )

    @property
    def _use(self) -> tuple[str, str]:
        """What another process may be at, and what to do instead of waiting."""
        return f"The run '{self.config.name}' in {self.path}", "give this one another name (--set name=...)"

    def _sweep(self) -> None:
        for path in (*(self.path / name for name in WRITTEN), self.config.data.train, self.config.data.eval):
            if path is not None:
                sweep(path)
        for path in _logs(self.logs):
            sweep(path)

    def _empty(self) -> None:
        """Removes what a run of this name wrote, and nothing else."""
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
        prepare: what is to be made, and may be refused, before the configuration is written.
        others: sections of other programs, to stand beside it.

    Raises:
        SlimError: another start works on the run, or it began with another configuration; or the disk would not take it.
    """
    with locked(folder, config.name):
        check_same(folder / "config.yaml", config)
        prepare()
        with disk_errors("run's folder", folder):
            config.write(folder / "config.yaml", **others)
        yield


def check_same(path: Path, config: Config) -> None:
    """Raises ConfigError if the configuration in `path` is another one (how long the run trains may change), or on a cluster if the log
    is outside the run's folder, where another run's may be.
    """
    backend, folder = config.train.backend, os.path.normpath(path.parent)
    if backend != "trl" and not Path(os.path.normpath(log_folder_of(path.parent, config))).is_relative_to(folder):
        raise ConfigError(
            f"log.dir is {config.log.dir}, but on {backend} a run keeps its log in its own folder, {folder}; name a folder in it, such as "
            "--set log.dir=dialogues."
        )
    if not path.exists():
        return
    began, local = configuration(path), config.train.backend == "trl"
    if began is None:
        over = "start over with --fresh" if local else "remove it to start over"
        raise ConfigError(f"{path} is not a configuration that can be read; {over}.")
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
    """Writes what a log of held-out games is played by beside it (`log`.yaml).

    Args:
        decides: the keys, or their first parts, that decide what is played.
        weights: the digest of the model's; None where there are none to be read.
        otherwise: what to do where another has played there.

    Raises:
        ConfigError: what is in the log was played by another configuration, or by other weights of that name.
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
    """The keys whose values are others than those of `began`, but for those that may change."""
    with suppress(ConfigError):  # of an older version: what it did not know yet has its default
        began = parse_config(began).model_dump(mode="json")
    return sorted(
        key
        for key in _differences(_shown(began), _shown(config.model_dump(mode="json"))) - MAY_CHANGE
        if ".openai.prices" not in key  # what the provider charges, which decides nothing that is said
    )


def _shown(config: dict[str, Any]) -> dict[str, Any]:
    """The config as a record has it: without the passwords of its URLs."""
    return dict(json.loads(without_passwords(json.dumps(config, default=str))))


def log_folder_of(folder: Path, config: Config) -> Path:
    """Where the dialogue logs of the run in `folder` are. On a cluster all of a run is in its own, on a disk that every node sees."""
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
    """Whether the file is a dialogue log of the run, or holds nothing."""
    first = next(iter(jsonl.scan(path)), None)
    return first is None or first.torn or (isinstance(first.data, dict) and first.data.get("run") == name)
