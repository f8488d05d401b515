"""Dialogues as one frame, one row per dialogue: from logs (`load`), or from memory (`frame_of`).

Invariants:
    A line of a log is counted once: as a dialogue, or as incomplete, unreadable, foreign or repeated. All counts reach the report.
    A file is streamed. A line leaves a row of numbers and its offset, from which `read_dialogue` reads it again.
"""

import math
import shlex
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from tqdm import tqdm

from slim_rl import jsonl, provenance
from slim_rl.analysis.arms import in_arms, order_arms, pooled, units_of
from slim_rl.dialogue.log import log_files, of_line
from slim_rl.dialogue.measures import MEASURES, OF_KIND, annotated, measures, not_measured
from slim_rl.dialogue.record import FORMAT, READABLE, Dialogue, current_line
from slim_rl.environment import game_of
from slim_rl.errors import DataError
from slim_rl.formats import count, words
from slim_rl.measured import NO_FAULT, measured, says

FAULTS, CASES = "faults: ", "cases: "  # begin columns of a kind of partner fault: how often it happened, could have
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
        frame: one row per dialogue. Columns: file (index into `files`) and offset (bytes), and those of `row_of` except id.
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


def load(log_dirs: Sequence[str | Path]) -> Log:
    """Reads every *.jsonl at or below `log_dirs` (folders or files).

    Raises:
        DataError: a path does not exist, there is no *.jsonl file, or no line in any of them is a dialogue.
    """
    files = [LogFile(path) for path in log_files(*log_dirs)]
    rows, parts = _rows(files), []
    while batch := list(islice(rows, _BATCH)):
        parts.append(pd.DataFrame(batch))
    if not parts:
        lines = count(sum(file.lines for file in files), "line")
        raise DataError(
            f"No dialogue is in {_names(log_dirs)} ({count(len(files), 'file')}, {lines}). Name the folder of a run's dialogue log, "
            "once its first dialogues have ended."
        )
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.assign(folder=frame["file"].map({number: str(file.path.parent) for number, file in enumerate(files)}))
    named = ["arm", "run", "phase", "step", "id"]
    same = frame.duplicated([*named, "folder"], keep="last")
    frame = frame[~same]
    shared = sorted(set(frame.loc[frame.duplicated(named, keep=False), "folder"]))
    frame = _tidy(frame.drop(columns="id").reset_index(drop=True))
    names, apart = pooled(units_of(frame))
    frame = in_arms(frame, names).drop(columns="folder")
    frame["arm"] = pd.Categorical(frame["arm"], order_arms(frame["arm"].unique()))
    kinds = _kinds(frame["environment"].cat.categories, frame.columns)
    folders = dict.fromkeys(file.path.parent for file in files)
    entries = provenance.distinct([entry for folder in folders for entry in provenance.read(folder)])
    log = Log(frame, files, kinds, entries, int(same.sum()), shared)
    log.warnings.extend([*_warnings(log), *apart])
    return log


def frame_of(dialogues: Iterable[Dialogue]) -> pd.DataFrame:
    """Returns the frame of annotated dialogues in memory, of which there is at least one."""
    rows = [row_of(dialogue) for dialogue in dialogues]
    return _tidy(pd.DataFrame(rows))


def row_of(dialogue: Dialogue, run: str = "") -> dict[str, Any]:
    """Returns the row of a dialogue. Raises ValueError if a measure is not a number.

    Columns: arm, run, phase, step, id, environment, game_id, seat, seed, group, policy, mode ("free", or the intervention of
    `evaluate`), partner, settings, price; cluster (the game: equal `game_id` and game state in any run); failed; cost_usd (of API
    calls, NaN without any); the measures of `dialogue.measures`; partner faults and their opportunities; and `Dialogue.columns`
    whose names are not taken.
    """
    numbers = measures(dialogue)
    if not all(isinstance(numbers[name], int | float) for name in MEASURES):
        raise ValueError("a measure is not a number")
    usages = [turn.usage for turn in dialogue.turns if turn.usage is not None]
    row = {
        "arm": str(dialogue.arm or dialogue.partner.get("kind") or "unnamed"),
        "run": str(dialogue.run or run),
        "phase": dialogue.phase,
        "step": math.nan if dialogue.step is None else float(dialogue.step),
        "id": dialogue.id,
        "game_id": dialogue.game_id,
        "cluster": f"{dialogue.game_id}:{zlib.crc32(orjson.dumps(dialogue.game_state)):08x}",
        "environment": dialogue.environment,
        "seat": dialogue.seat,
        "seed": dialogue.seed,
        "group": dialogue.group,
        "policy": _identity(dialogue.policy),
        "mode": str(dialogue.policy.get("intervention") or "free"),
        "partner": _identity(dialogue.partner),
        "settings": sys.intern(orjson.dumps(dialogue.settings, option=orjson.OPT_SORT_KEYS).decode()),
        "price": math.nan if dialogue.price is None else dialogue.price,
        "failed": dialogue.failed,
        "cost_usd": sum(usage.cost_usd for usage in usages) if usages else math.nan,
        "annotated": sys.intern(annotated(dialogue)),
        **numbers,
        **_faults(dialogue),
    }
    if dialogue.annotator_version is None and says(game_of(dialogue.environment), "annotate"):  # which failed
        row |= {name: math.nan for name, measure in MEASURES.items() if measure.needs}
    columns = {name: value for name, value in dialogue.columns.items() if isinstance(value, bool | int | float | str)}
    return columns | row


def read_dialogue(log: Log, row: Any) -> dict[str, Any]:
    """Returns the log line behind a row of `log.frame` (by `file` and `offset`). Raises DataError if the file has changed."""
    path = log.files[int(row.file)].path
    try:
        with path.open("rb") as stream:
            stream.seek(int(row.offset))
            data: dict[str, Any] = orjson.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} changed while it was read ({error}). Run the same command again.") from error
    return current_line(data)


# -- rows --------------------------------------------------------------------------------------------------------------


def _rows(files: Sequence[LogFile]) -> Iterator[dict[str, Any]]:
    """Yields one row per dialogue, with its file and offset; counts the files' lines."""
    size = sum(file.path.stat().st_size for file in files)
    with tqdm(total=size, desc="reading", unit="B", unit_scale=True, disable=None) as bar:
        for number, file in enumerate(files):
            for line in _lines(file):
                bar.update(line.end - line.offset)
                try:
                    row = row_of(of_line(line.data), file.path.parent.name)
                except ValueError:  # the line has a dialogue's keys but invalid values
                    file.foreign += 1
                    continue
                file.dialogues += 1
                yield {**row, "file": number, "offset": line.offset}


def _lines(file: LogFile) -> Iterator[jsonl.Line]:
    """Yields the file's lines that may be dialogues; counts the others."""
    try:
        for line in jsonl.scan(file.path):
            file.lines += 1
            data = line.data
            if line.error is not None:
                file.incomplete += line.torn
                file.unreadable += not line.torn
            elif (
                isinstance(data, dict)
                and {"turns", "game_id"} <= data.keys()
                and data.get("format", FORMAT) in READABLE
            ):
                yield line
            else:
                file.foreign += 1
    except OSError as error:
        raise DataError(
            f"{file.path} cannot be read ({error.strerror}). Make it readable, or move it out of the log folder."
        ) from error


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with NaN for missing measures, 0 for missing kinds, and names as categories."""
    for environment, rows in frame.groupby("environment", observed=True):
        if absent := not_measured(str(environment), rows["annotated"].unique()):
            frame[absent] = frame[absent].astype(float)
            frame.loc[rows.index, absent] = math.nan
    frame = frame.drop(columns="annotated")
    for name in frame.select_dtypes(exclude=["number", "bool"]):  # repeated names take less memory as categories
        frame[name] = frame[name].astype("category")
    counted = [name for name in frame.columns if name.startswith((OF_KIND, FAULTS, CASES))]
    frame[counted] = frame[counted].fillna(0)
    return frame


def _faults(dialogue: Dialogue) -> dict[str, int]:
    """Returns the columns of the partner's faults; none if the game's audit fails, without dropping the dialogue."""
    try:
        faults = measured(game_of(dialogue.environment)).partner_faults(dialogue)
    except Exception:  # a custom game may raise anything
        return {}
    kinds = {name: pair for name, pair in faults.items() if not name.endswith(NO_FAULT)}
    return {
        f"{prefix}{name}": n for name, pair in kinds.items() for prefix, n in zip((FAULTS, CASES), pair, strict=True)
    }


def _identity(identity: Mapping[str, Any]) -> str:
    """Returns a short name: the kind and, if known, the model."""
    named = [str(identity[key]) for key in ("kind", "name", "model", "checkpoint") if identity.get(key)]
    return " ".join(dict.fromkeys(named)) or "unnamed"


def _kinds(environments: Iterable[str], columns: Iterable[str]) -> dict[str, str]:
    """Returns the title of each kind of question: the games' titles first, then names of other kinds in the columns."""
    games = (measured(game_of(environment)) for environment in environments)
    titles = {kind: title for game in games for kind, title in game.question_kinds.items()}
    names = [name.removeprefix(OF_KIND) for name in columns if name.startswith(OF_KIND)]
    return titles | {kind: words(kind) for kind in names if kind not in titles}


# -- warnings ----------------------------------------------------------------------------------------------------------


def _names(paths: Iterable[str | Path]) -> str:
    return ", ".join(map(str, paths))


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
            f"Several folders have dialogues of the same run and name, which are read as one run: {_names(log.shared)}. Leave out copies, or "
            "give each seed its own name."
        )
    for environment in log.frame["environment"].cat.categories:
        if game_of(environment) is None:
            yield (
                f"Without boards, labels and reference lines, because the code of the game {environment} is not imported. If you trust "
                f"it, add --game {shlex.quote(environment)}."
            )
    if failed := int(log.frame["failed"].sum()):
        yield f"Without a reward, so only in the stop reasons: {count(failed, 'failed dialogue')}."
