"""Dialogue logs as one tidy frame: one row a dialogue, flat numbers only, every line of every file accounted for.

The invariant: a line is counted once, as a dialogue or as one of the reasons it is not (torn, unreadable, foreign,
repeated), and all of these counts reach the report. A file is read as a stream; of each line only a row of
numbers and its place in the file are kept, from where the dialogue can be read again (`read_dialogue`). Of a file that grows only
what is new is read (`Reader`).
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from tqdm import tqdm

from slim_rl import jsonl, provenance
from slim_rl.analysis import partner_faults
from slim_rl.analysis.arms import in_arms, order_arms, pooled, units_of
from slim_rl.analysis.rows import row_of, without_unmeasured
from slim_rl.dialogue.log import log_files
from slim_rl.dialogue.measures import OF_KIND
from slim_rl.dialogue.record import FORMAT, READABLE, current_line
from slim_rl.environment import game_of
from slim_rl.errors import DataError
from slim_rl.formats import count, words
from slim_rl.measured import measured

_BATCH = 4096  # rows held as Python objects before they become columns


@dataclass(slots=True)
class LogFile:
    """What one file held.

    Attributes:
        path: where it is.
        lines: lines in it, empty ones aside.
        dialogues: lines that became rows.
        torn: 1 if its last line was cut while it was being written.
        unreadable: other lines that are not JSON.
        foreign: JSON lines that are not dialogues, or of a format newer than this program's.
    """

    path: Path
    lines: int = 0
    dialogues: int = 0
    torn: int = 0
    unreadable: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """All dialogues of some log folders.

    Attributes:
        frame: one row a dialogue. Where it comes from: file (index into `files`), offset (bytes); arm, run, phase, step,
            environment, game_id, seat, seed, group, policy, mode (free, or the intervention of `evaluate`), partner; cluster
            (the game: dialogues with equal `game_id` and game state, in any run); failed; cost_usd (of the partner's calls, NaN where
            there are none); then the measures of `dialogue.measures`; then, for all that the partner can do wrongly, how often it did, and how often it could have; and the
            game's own (`Dialogue.columns`), but for those that have the name of another.
        files: what each file held.
        kinds: the games' kinds of question, each a column `questions/<kind>`, and what a reader is told of it.
        provenance: what wrote the files, as far as their folders tell.
        repeated: dialogues logged more than once in a folder, of which the last counts (a run resumed before its last lines).
        shared: folders that hold dialogues of the same names as others: all of them count.
    """

    frame: pd.DataFrame
    files: list[LogFile]
    kinds: dict[str, str]
    provenance: list[dict[str, Any]]
    repeated: int
    shared: list[str]
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A file of which the first `read` bytes are read."""

    file: LogFile
    inode: int
    read: int = 0


class Reader:
    """Dialogue logs that may still be written: each of their lines is read once, a torn last one when it is whole.

    Args:
        log_dirs: folders or files.
    """

    def __init__(self, log_dirs: Sequence[str | Path]) -> None:
        self.log_dirs = log_dirs
        self._open: dict[Path, _Open] = {}
        self._parts: list[pd.DataFrame] = []

    def more(self, seconds: float = math.inf, show: bool = False) -> bool:
        """Reads what is new in every *.jsonl at or below the folders, for about so many seconds of processor time; whether there was
        anything. After a file was removed, or written anew by a run that resumed, all of them are read again.

        Args:
            show: with a progress bar, on a terminal.

        Raises:
            DataError: a path does not exist, or there is no *.jsonl file.
        """
        until = time.process_time() + seconds
        found = {}
        for path in log_files(*self.log_dirs):
            with suppress(FileNotFoundError):  # it may have gone since
                found[path] = path.stat()
        anew = any(
            path not in found or place.inode != found[path].st_ino or place.read > found[path].st_size
            for path, place in self._open.items()
        )
        if anew:
            self._open, self._parts = {}, []
        for path, stat in found.items():
            self._open.setdefault(path, _Open(LogFile(path), stat.st_ino))
        before = self.progress[0]
        if before == sum(stat.st_size for stat in found.values()):
            return anew
        rows = self._rows(show, until)
        while batch := list(islice(rows, _BATCH)):
            self._parts.append(pd.DataFrame(batch))
        return anew or self.progress[0] > before

    @property
    def progress(self) -> tuple[int, int]:
        """The bytes that were read, and those that there are."""
        places = self._open.items()
        there = 0
        for path, _ in places:
            with suppress(OSError):
                there += path.stat().st_size
        return sum(place.read for _, place in places), there

    def log(self) -> Log:
        """What was read. Raises DataError if no line of it is a dialogue."""
        files = [place.file for place in self._open.values()]
        if not self._parts:
            lines = count(sum(file.lines for file in files), "line")
            raise DataError(
                f"There is no dialogue in {_names(self.log_dirs)} ({count(len(files), 'file')}, {lines}); give the folder that a run wrote "
                "its dialogue log to, once its first dialogues have ended."
            )
        self._parts = [pd.concat(self._parts, ignore_index=True)]
        frame = self._parts[0]
        folders = {number: str(file.path.parent) for number, file in enumerate(files)}
        frame = frame.assign(folder=frame["file"].map(folders))
        named = ["arm", "run", "phase", "step", "id"]
        same = frame.duplicated([*named, "folder"], keep="last")
        frame = frame[~same]
        shared = sorted(set(frame.loc[frame.duplicated(named, keep=False), "folder"]))
        frame = without_unmeasured(frame.drop(columns="id").reset_index(drop=True))
        for name in frame.select_dtypes(exclude=["number", "bool"]):  # words, the same ones again and again
            frame[name] = frame[name].astype("category")
        names, apart = pooled(units_of(frame))
        frame = in_arms(frame, names).drop(columns="folder")
        frame["arm"] = pd.Categorical(frame["arm"], order_arms(frame["arm"].unique()))
        audited = [name for name in frame.columns if partner_faults.is_column(name)]
        asked = [name for name in frame.columns if name.startswith(OF_KIND)]
        frame[[*asked, *audited]] = frame[[*asked, *audited]].fillna(0)
        kinds = _kinds(frame["environment"].cat.categories, asked)
        made = [
            entry for folder in dict.fromkeys(file.path.parent for file in files) for entry in provenance.read(folder)
        ]
        log = Log(frame, files, kinds, provenance.distinct(made), int(same.sum()), shared)
        log.warnings.extend([*_warnings(log), *apart])
        return log

    def _rows(self, show: bool, until: float) -> Iterator[dict[str, Any]]:
        """A row a new dialogue, with its place; counts what the files hold."""
        places = [place for place in self._open.values() if place.file.path.is_file()]
        numbers = {id(place): number for number, place in enumerate(self._open.values())}
        sizes = [place.file.path.stat().st_size for place in places]
        with tqdm(total=sum(sizes), desc="reading", unit="B", unit_scale=True, disable=None if show else True) as bar:
            for index, place in enumerate(places):
                before = sum(sizes[:index])
                for offset, data in _lines(place):
                    bar.update(before + offset - bar.n)
                    try:
                        row = row_of(data, place.file.path)
                    except ValueError:  # it has a dialogue's keys, yet not its form
                        place.file.foreign += 1
                        continue
                    place.file.dialogues += 1
                    yield {**row, "file": numbers[id(place)], "offset": offset}
                    if time.process_time() > until:
                        return


def load(log_dirs: Sequence[str | Path]) -> Log:
    """Reads every *.jsonl at or below `log_dirs` (folders or files).

    Raises:
        DataError: a path does not exist, there is no *.jsonl file, or no line in any of them is a dialogue.
    """
    reader = Reader(log_dirs)
    reader.more(show=True)
    return reader.log()


def read_dialogue(log: Log, row: Any) -> dict[str, Any]:
    """Returns the whole line behind a row of `log.frame` (needs its `file` and `offset`). Raises DataError if it is not there any more."""
    path = log.files[int(row.file)].path
    try:
        with path.open("rb") as stream:
            stream.seek(int(row.offset))
            data: dict[str, Any] = orjson.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} changed while it was read ({error}); run the same command again.") from error
    return current_line(data)


def _names(paths: Sequence[str | Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _lines(place: _Open) -> Iterator[tuple[int, dict[str, Any]]]:
    """The file's new dialogues with the offset of their lines; counts the others."""
    file = place.file
    try:
        file.path.open("rb").close()
    except OSError as error:
        raise DataError(
            f"Cannot read {file.path}: {error.strerror}; make it readable, or move it out of the log folder."
        ) from error
    file.lines, file.torn = file.lines - file.torn, 0
    for line in jsonl.scan(file.path, place.read):
        file.lines += 1
        if line.torn:
            file.torn += 1
            return  # it may yet become whole
        place.read = line.end
        if line.error is not None:
            file.unreadable += 1
        elif not _is_dialogue(line.data):
            file.foreign += 1
        else:
            yield line.offset, line.data


def _is_dialogue(data: Any) -> bool:
    return isinstance(data, dict) and {"turns", "game_id"} <= data.keys() and data.get("format", FORMAT) in READABLE


def _kinds(environments: Iterable[str], columns: Iterable[str]) -> dict[str, str]:
    """What a reader is told of each kind of question: by its game, else its name. Those of the games come first."""
    games = (measured(game_of(environment)) for environment in environments)
    said = {kind: title for game in games for kind, title in game.question_kinds.items()}
    found = {kind: words(kind) for kind in (name.removeprefix(OF_KIND) for name in columns)}
    return said | {kind: name for kind, name in found.items() if kind not in said}


def _warnings(log: Log) -> Iterator[str]:
    torn = [f.path for f in log.files if f.torn]
    if torn:
        yield f"Not counted: the last line of {_names(torn)}, torn while it was being written."
    for file in log.files:
        if file.unreadable:
            yield f"Not counted: {count(file.unreadable, 'line')} of {file.path} that are not JSON."
        if file.foreign:
            yield f"Not counted: {count(file.foreign, 'line')} of {file.path} that are not dialogues (formats {READABLE[0]} to {FORMAT})."
    if log.repeated:
        yield f"Logged more than once (by a run that was resumed), the last counts: {count(log.repeated, 'dialogue')}."
    if log.shared:
        yield (
            f"Dialogues of the same run and name are in several folders, and all count: {_names(log.shared)}; leave out a folder that is a "
            "copy of another."
        )
    for environment in log.frame["environment"].cat.categories:
        if game_of(environment) is None:
            yield (
                f"Without boards, labels and reference lines: the log names the game {environment}, and a log runs no code; "
                f"if you trust that game's code, add --game {shlex.quote(environment)}."
            )
    failed = int(log.frame["failed"].sum())
    if failed:
        yield f"Without a reward, so counted among the stop reasons only: {count(failed, 'failed dialogue')}."
