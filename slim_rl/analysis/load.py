"""Dialogue logs as one frame, one row per dialogue.

Invariants:
    A line is counted once: as a dialogue, or as incomplete, unreadable, foreign or repeated. All counts reach the report.
    A file is streamed. A line leaves a row of numbers and its offset, from which `read_dialogue` reads it again.
    Only new lines of a growing file are read (`Reader`).
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
    """Counts of one file's lines.

    Attributes:
        path: path of the file.
        lines: non-empty lines.
        dialogues: lines that became rows.
        incomplete: 1 if the last line is incomplete, because its writer was interrupted; else 0.
        unreadable: other lines that are not JSON.
        foreign: JSON lines that are not dialogues, or of a newer log format.
    """

    path: Path
    lines: int = 0
    dialogues: int = 0
    incomplete: int = 0
    unreadable: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """Dialogues of some log folders.

    Attributes:
        frame: one row per dialogue. Columns: file (index into `files`) and offset (bytes); arm, run, phase, step, environment,
            game_id, seat, seed, group, policy, mode ("free", or the intervention of `evaluate`), partner; cluster (the game:
            equal `game_id` and game state in any run); failed; cost_usd (API calls, NaN without any); the measures of
            `dialogue.measures`; partner faults and their opportunities; `Dialogue.columns` whose names are not taken.
        files: counts per file.
        kinds: title of each kind of question; its column is `questions/<kind>`.
        provenance: commands that wrote the files, as recorded in their folders.
        repeated: dialogues logged again by a resumed run in the same folder; the last one counts.
        shared: folders with dialogues of the same name as in others; all of them count.
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
    """Log file whose first `read` bytes have been read."""

    file: LogFile
    inode: int
    read: int = 0


class Reader:
    """Incremental reader of growing logs: each line is read once, an incomplete last one when it is complete.

    Args:
        log_dirs: folders or files of logs.
    """

    def __init__(self, log_dirs: Sequence[str | Path]) -> None:
        self.log_dirs = log_dirs
        self._open: dict[Path, _Open] = {}
        self._parts: list[pd.DataFrame] = []

    def more(self, seconds: float = math.inf, show: bool = False) -> bool:
        """Reads new lines of every *.jsonl at or below the folders. Returns True if there were any.

        Reads everything again if a file was removed or rewritten.

        Args:
            seconds: approximate limit of processor time.
            show: whether to show a progress bar on a terminal.

        Raises:
            DataError: a path does not exist, or there is no *.jsonl file.
        """
        until = time.process_time() + seconds
        stats = {}
        for path in log_files(*self.log_dirs):
            with suppress(FileNotFoundError):  # the file may have been removed since
                stats[path] = path.stat()
        restarted = any(
            path not in stats or place.inode != stats[path].st_ino or place.read > stats[path].st_size
            for path, place in self._open.items()
        )
        if restarted:
            self._open, self._parts = {}, []
        for path, stat in stats.items():
            self._open.setdefault(path, _Open(LogFile(path), stat.st_ino))
        before = self.progress[0]
        if before == sum(stat.st_size for stat in stats.values()):
            return restarted
        rows = self._rows(show, until)
        while batch := list(islice(rows, _BATCH)):
            self._parts.append(pd.DataFrame(batch))
        return restarted or self.progress[0] > before

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes read so far, and bytes in the files."""
        size = 0
        for path in self._open:
            with suppress(OSError):
                size += path.stat().st_size
        return sum(place.read for place in self._open.values()), size

    def log(self) -> Log:
        """Returns the dialogues read so far. Raises DataError without any."""
        files = [place.file for place in self._open.values()]
        if not self._parts:
            lines = count(sum(file.lines for file in files), "line")
            raise DataError(
                f"No dialogue is in {_names(self.log_dirs)} ({count(len(files), 'file')}, {lines}). Name the folder of a run's dialogue log, "
                "once its first dialogues have ended."
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
        for name in frame.select_dtypes(exclude=["number", "bool"]):  # repeated names take less memory as categories
            frame[name] = frame[name].astype("category")
        names, apart = pooled(units_of(frame))
        frame = in_arms(frame, names).drop(columns="folder")
        frame["arm"] = pd.Categorical(frame["arm"], order_arms(frame["arm"].unique()))
        audited = [name for name in frame.columns if partner_faults.is_column(name)]
        asked = [name for name in frame.columns if name.startswith(OF_KIND)]
        frame[[*asked, *audited]] = frame[[*asked, *audited]].fillna(0)
        kinds = _kinds(frame["environment"].cat.categories, asked)
        entries = [
            entry for folder in dict.fromkeys(file.path.parent for file in files) for entry in provenance.read(folder)
        ]
        log = Log(frame, files, kinds, provenance.distinct(entries), int(same.sum()), shared)
        log.warnings.extend([*_warnings(log), *apart])
        return log

    def _rows(self, show: bool, until: float) -> Iterator[dict[str, Any]]:
        """Yields one row per new dialogue, with its file and offset; counts the files' lines."""
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
                    except ValueError:  # the line has a dialogue's keys but invalid values
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
    """Returns the log line behind a row of `log.frame` (by `file` and `offset`).

    Raises:
        DataError: the file changed since it was read.
    """
    path = log.files[int(row.file)].path
    try:
        with path.open("rb") as stream:
            stream.seek(int(row.offset))
            data: dict[str, Any] = orjson.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} changed while it was read ({error}). Run the same command again.") from error
    return current_line(data)


def _names(paths: Sequence[str | Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _lines(place: _Open) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the file's new dialogues with the offsets of their lines; counts the other lines."""
    file = place.file
    try:
        file.path.open("rb").close()
    except OSError as error:
        raise DataError(
            f"{file.path} cannot be read ({error.strerror}). Make it readable, or move it out of the log folder."
        ) from error
    file.lines, file.incomplete = file.lines - file.incomplete, 0
    for line in jsonl.scan(file.path, place.read):
        file.lines += 1
        if line.torn:
            file.incomplete += 1
            return  # the writer may complete it later
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
    """Returns the title of each kind of question: the games' titles first, then names of other kinds in the columns."""
    games = (measured(game_of(environment)) for environment in environments)
    titles = {kind: title for game in games for kind, title in game.question_kinds.items()}
    names = (name.removeprefix(OF_KIND) for name in columns)
    return titles | {kind: words(kind) for kind in names if kind not in titles}


def _warnings(log: Log) -> Iterator[str]:
    if incomplete := [file.path for file in log.files if file.incomplete]:
        yield f"Ignored: the incomplete last line of {_names(incomplete)} (the writer was interrupted)."
    for file in log.files:
        if file.unreadable:
            yield f"Ignored: {count(file.unreadable, 'line')} of {file.path} that are not JSON."
        if file.foreign:
            yield f"Ignored: {count(file.foreign, 'line')} of {file.path} that are not dialogues (formats {READABLE[0]} to {FORMAT})."
    if log.repeated:
        yield f"Logged again by a resumed run, so that the last one counts: {count(log.repeated, 'dialogue')}."
    if log.shared:
        yield (
            f"Several folders have dialogues of the same run and name, and all count: {_names(log.shared)}. Leave out copies of a folder."
        )
    for environment in log.frame["environment"].cat.categories:
        if game_of(environment) is None:
            yield (
                f"Without boards, labels and reference lines, because the code of the game {environment} is not imported. If you trust "
                f"it, add --game {shlex.quote(environment)}."
            )
    failed = int(log.frame["failed"].sum())
    if failed:
        yield f"Without a reward, so only in the stop reasons: {count(failed, 'failed dialogue')}."
