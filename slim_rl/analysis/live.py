"""Live view of a running run, from its dialogue log alone: its numbers and its page.

Invariant: an update reads only new lines of the log, for at most about half a second, and computes nothing without them. Its cost
does not grow with the log; until the log is read completely, the page states the progress.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from slim_rl.analysis import viewer
from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.figures import PLOTS
from slim_rl.analysis.load import Log, Reader, read_dialogue
from slim_rl.analysis.page import Page, Renewed, draw_figures
from slim_rl.analysis.report_tables import Tables
from slim_rl.analysis.summary import checkpoints, over_training, runs
from slim_rl.analysis.tables import Column, Table, prose
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.measures import shown_in
from slim_rl.errors import DataError
from slim_rl.formats import count, plain, words
from slim_rl.runs import configuration, log_folder_of

READING_SECONDS = 0.5  # processor time per update
QUIET_SECONDS = 300.0
LAST_FAILURES = 5
FIGURES = ("training", "measures", "question_kinds", "stop_reasons")
METHOD = (
    "Source: the dialogue log as written so far. Means are over dialogues that did not fail, with 95% intervals over games. A step's "
    "dialogues are logged when all of them have ended."
)


class LiveRun:
    """Watched run.

    Attributes:
        log: dialogues read so far; None before the first.
        numbers: numbers for the report's tables and figures.
        version: counter that grows when anything shown changes.

    Args:
        run: folder of the run or of its dialogue log, or a log file; it need not exist yet.
        shown: maximum number of dialogues on the page, the newest.
        quiet_seconds: time without new lines after which the run may have ended.
    """

    def __init__(self, run: Path, shown: int = 100, quiet_seconds: float = QUIET_SECONDS) -> None:
        self.run, self.shown, self.quiet_seconds = run, shown, quiet_seconds
        self.log: Log | None = None
        self.numbers: dict[str, Any] = {}
        self.version = 0
        self._reader: Reader | None = None
        self._config: Config | None = None
        self._quiet = False

    def look(self, all_of_it: bool = False) -> bool:
        """Reads new lines, for `READING_SECONDS` or all of them. Returns True if anything shown has changed."""
        if self._reader is None or self.log is None:
            self._reader = Reader([self._log_path()])
        try:
            grown = self._reader.more(math.inf if all_of_it else READING_SECONDS)
            if grown:
                self.log = self._reader.log()
        except DataError:  # no log or no dialogue yet, or the run starts over
            grown, self.log = self.log is not None, None
        if grown:
            self.numbers = _numbers(self.log) if self.log is not None else {}
        quiet = self.log is not None and time.time() - _last_written(self.log) > self.quiet_seconds
        changed = grown or quiet != self._quiet or self.version == 0
        self._quiet = quiet
        self.version += changed
        return changed

    def forget(self) -> None:
        """Makes the next `look` read the log from its beginning, after it changed during a read."""
        self._reader, self.log, self.numbers = None, None, {}
        self.version += 1

    @property
    def behind(self) -> bool:
        """True if part of the log is not read yet."""
        read, size = self._progress_bytes()
        return read < size and not any(file.incomplete for file in (self.log.files if self.log is not None else ()))

    def sentences(self) -> list[str]:
        """Returns the state of the run, in sentences."""
        if self.log is None:
            return [f"Waiting for the dialogues of the first step in {self._log_path()}."]
        return [*self._progress(self.log), *_failures(self.log.frame), *_spend(self.log.frame)]

    def page(self, seconds: float) -> str:
        """Returns the page as HTML, which polls for the next version every `seconds`."""
        common: dict[str, Any] = {
            "title": f"Run {words(self._name())}",
            "sentences": self.sentences(),
            "method": METHOD,
            "origin": f"Made by `slim-rl watch {self.run}`.",
            "renewed": Renewed(str(self.version), seconds),
        }
        if self.log is None:
            return Page(figures=(), sections={}, **common).html()
        tables = Tables(self.numbers)
        held_out = tables.checkpoints(minimum=1)
        plots = {name: PLOTS[name] for name in FIGURES}
        sections = {"Held-out games": [held_out] if held_out.rows else [], "Failures": _failure_tables(self.log)}
        last = viewer.collect(self.log, self.shown, last=True)
        return Page(
            figures=[picture for picture, _ in draw_figures(plots, self.numbers, first="training")],
            tables=[tables.training()],
            sections={name: parts for name, parts in sections.items() if parts},
            warnings=self.log.warnings,
            sample=f"The last {len(last['dialogues']):,} of {count(len(self.log.frame), 'dialogue')}, newest first.",
            dialogues={
                **last,
                "kinds": self.numbers["question_kinds"],
                "colours": colours(self.numbers["arms"]),
                "mask": True,
            },
            **common,
        ).html()

    def _progress_bytes(self) -> tuple[int, int]:
        return self._reader.progress if self._reader is not None else (0, 0)

    def _log_path(self) -> Path:
        """Returns the log's folder: the one that the run's configuration names, else the path itself."""
        settings = configuration(self.run / "config.yaml") if self.run.is_dir() else None
        self._config = parse_config(settings) if settings is not None else None
        return log_folder_of(self.run, self._config) if self._config is not None else self.run

    def _name(self) -> str:
        names = self.log.frame["run"].cat.categories if self.log is not None else []
        return str(names[0]) if len(names) == 1 else self.run.name

    def _progress(self, log: Log) -> list[str]:
        frame = log.frame
        train = frame[frame["phase"] == TRAIN]
        held_out = len(frame) - len(train)
        parts = [count(len(train), "training dialogue")] if len(train) else []
        parts += [count(held_out, "held-out dialogue")] if held_out else []
        sentences = [
            f"{' and '.join(parts)}{self._step(train)}; last logged at {time.strftime('%H:%M:%S %Z', time.localtime(_last_written(log)))}."
        ]
        read, size = self._progress_bytes()
        if self.behind and read < 0.99 * size:
            sentences.append(f"{100 * read / size:.0f}% of the log is read so far.")
        if self._quiet:
            minutes = count(round(self.quiet_seconds / 60), "minute")
            sentences.append(f"Nothing was logged for more than {minutes}: the run has ended, or it is waiting.")
        return sentences

    def _step(self, train: pd.DataFrame) -> str:
        if not train["step"].notna().any():
            return ""
        config, step = self._config, int(train["step"].max()) + 1
        return f", {step} of {count(config.train.steps, 'step')}" if config else f", {count(step, 'step')}"


# -- numbers from the log


def _last_written(log: Log) -> float:
    times = [0.0]
    for file in log.files:
        with suppress(OSError):  # the file may have been removed
            times.append(file.path.stat().st_mtime)
    return max(times)


def _failures(frame: pd.DataFrame) -> list[str]:
    failed = frame[frame["failed"]]
    if failed.empty:
        return ["No dialogue failed."]
    reasons = failed["stop_reason"].astype(str).value_counts()
    counts = ", ".join(f"{count} × {words(reason)}" for reason, count in reasons.items())
    return [f"{count(len(failed), 'dialogue')} failed ({plain(len(failed) / len(frame), share=True)}): {counts}."]


def _spend(frame: pd.DataFrame) -> list[str]:
    cost = frame["cost_usd"].dropna()
    if cost.empty:
        return []
    return [f"API calls in these dialogues cost ${cost.sum():.2f}, ${cost.mean():.4f} per dialogue."]


def _failure_tables(log: Log) -> list[Table]:
    """Returns a table of the last failures and their errors."""
    last = viewer.newest(log.frame[log.frame["failed"]], LAST_FAILURES)
    columns = [
        prose("phase"),
        Column("step", lambda row: plain(row["step"]) if pd.isna(row["step"]) else f"{row['step']:.0f}"),
        prose("game_id", "game"),
        Column("reason", lambda row: words(row["stop_reason"]), prose=True),
        prose("error"),
    ]
    errors = [read_dialogue(log, row).get("failure") or "" for row in last.itertuples()]
    rows = last.assign(error=errors).to_dict("records")
    table = Table(f"The last {count(len(rows), 'failed dialogue')}, newest first.", columns, rows)
    return [table] if rows else []


def _numbers(log: Log) -> dict[str, Any]:
    frame = log.frame
    names = [m.name for m in shown_in("step", "step end", "card") if m.name in frame and frame[m.name].notna().any()]
    return {**over_training(frame, names, log.kinds), "runs": runs(frame), "checkpoints": checkpoints(frame, names)}
