"""A run while it goes on, from its dialogue log alone: its numbers, and the page that shows them.

The invariant: a look reads only what is new in the log, for about half a second at most, and nothing is computed unless there was something.
So a log of hours costs a look no more than one of minutes; until all of it is read the page says how much is.
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

READING_SECONDS = 0.5  # of processor time, at a look
QUIET_SECONDS = 300.0
LAST_FAILURES = 5
FIGURES = ("training", "measures", "question_kinds", "stop_reasons")
METHOD = (
    "From the dialogue log alone, as far as it is written. Means are of dialogues that did not fail, with 95% intervals over games. A step's "
    "dialogues are logged when all of them have ended."
)


class LiveRun:
    """A run that is watched.

    Attributes:
        log: what was read; None before the first dialogue.
        numbers: of it, as the report's tables and figures read them.
        version: changes whenever anything that is shown does.

    Args:
        run: its folder, or that of its dialogue log, or a file of it; it need not be there yet.
        shown: dialogues that can be read on the page: the newest.
        quiet_seconds: a log that has not grown for so long may be a finished run's.
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
        """Reads what is new, as much as there is time for or all of it; whether anything that is shown has changed."""
        if self._reader is None or self.log is None:
            self._reader = Reader([self._place()])
        try:
            grown = self._reader.more(math.inf if all_of_it else READING_SECONDS)
            if grown:
                self.log = self._reader.log()
        except DataError:  # there is no log yet, or no dialogue in it; or it is being started over
            grown, self.log = self.log is not None, None
        if grown:
            self.numbers = _numbers(self.log) if self.log is not None else {}
        quiet = self.log is not None and time.time() - _last_written(self.log) > self.quiet_seconds
        changed = grown or quiet != self._quiet or self.version == 0
        self._quiet = quiet
        self.version += changed
        return changed

    def forget(self) -> None:
        """Reads the log from its start at the next look: it changed while it was read."""
        self._reader, self.log, self.numbers = None, None, {}
        self.version += 1

    @property
    def behind(self) -> bool:
        """Whether some of the log is still to be read."""
        read, there = self._read()
        return read < there and not any(file.torn for file in (self.log.files if self.log is not None else ()))

    def sentences(self) -> list[str]:
        """How the run stands."""
        if self.log is None:
            return [f"There is no dialogue in {self._place()} yet: this waits for the first step's."]
        return [*self._progress(self.log), *_failures(self.log.frame), *_spend(self.log.frame)]

    def page(self, seconds: float) -> str:
        """The page as HTML, which asks every so many seconds for its next version."""
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
        held_out = tables.checkpoints(least=1)
        plots = {name: PLOTS[name] for name in FIGURES}
        sections = {"Held-out games": [held_out] if held_out.rows else [], "Failures": _failure_tables(self.log)}
        last = viewer.collect(self.log, self.shown, last=True)
        return Page(
            figures=[picture for picture, _ in draw_figures(plots, self.numbers, first="training")],
            tables=[tables.training()],
            sections={name: parts for name, parts in sections.items() if parts},
            warnings=self.log.warnings,
            sample=f"The last {len(last['dialogues']):,} of {count(len(self.log.frame), 'dialogue')}, the newest first.",
            dialogues={
                **last,
                "kinds": self.numbers["question_kinds"],
                "colours": colours(self.numbers["arms"]),
                "mask": True,
            },
            **common,
        ).html()

    def _read(self) -> tuple[int, int]:
        return self._reader.progress if self._reader is not None else (0, 0)

    def _place(self) -> Path:
        """The log's folder; of a run's own folder the one that its configuration names."""
        found = configuration(self.run / "config.yaml") if self.run.is_dir() else None
        self._config = parse_config(found) if found is not None else None
        return log_folder_of(self.run, self._config) if self._config is not None else self.run

    def _name(self) -> str:
        names = self.log.frame["run"].cat.categories if self.log is not None else []
        return str(names[0]) if len(names) == 1 else self.run.name

    def _progress(self, log: Log) -> list[str]:
        frame = log.frame
        train = frame[frame["phase"] == TRAIN]
        held_out = len(frame) - len(train)
        parts = [count(len(train), "dialogue") + " of training"] if len(train) else []
        parts += [count(held_out, "held-out one" if parts else "held-out dialogue")] if held_out else []
        played = " and ".join(parts)
        said = [
            f"{played}{self._step(train)}; the last was logged at {time.strftime('%H:%M:%S %Z', time.localtime(_last_written(log)))}."
        ]
        read, there = self._read()
        if self.behind and read < 0.99 * there:
            said.append(f"So far {100 * read / there:.0f}% of the log is read.")
        if self._quiet:
            minutes = count(round(self.quiet_seconds / 60), "minute")
            said.append(f"Nothing was logged for more than {minutes}: the run has ended, or it waits.")
        return said

    def _step(self, train: pd.DataFrame) -> str:
        if not train["step"].notna().any():
            return ""
        config, step = self._config, int(train["step"].max()) + 1
        return f", {step} of {count(config.train.steps, 'step')}" if config else f", {count(step, 'step')}"


# -- what its log shows


def _last_written(log: Log) -> float:
    times = [0.0]
    for file in log.files:
        with suppress(OSError):  # it may have gone
            times.append(file.path.stat().st_mtime)
    return max(times)


def _failures(frame: pd.DataFrame) -> list[str]:
    failed = frame[frame["failed"]]
    if failed.empty:
        return ["No dialogue failed."]
    reasons = failed["stop_reason"].astype(str).value_counts()
    told = ", ".join(f"{count} × {words(reason)}" for reason, count in reasons.items())
    return [f"{count(len(failed), 'dialogue')} failed ({plain(len(failed) / len(frame), share=True)}): {told}."]


def _spend(frame: pd.DataFrame) -> list[str]:
    cost = frame["cost_usd"].dropna()
    if cost.empty:
        return []
    return [f"The partner's calls in these dialogues cost ${cost.sum():.2f}, ${cost.mean():.4f} a dialogue."]


def _failure_tables(log: Log) -> list[Table]:
    """The last failures, with what went wrong."""
    last = viewer.newest(log.frame[log.frame["failed"]], LAST_FAILURES)
    columns = [
        prose("phase"),
        Column("step", lambda row: plain(row["step"]) if pd.isna(row["step"]) else f"{row['step']:.0f}"),
        prose("game_id", "game"),
        Column("reason", lambda row: words(row["stop_reason"]), prose=True),
        prose("said", "what went wrong"),
    ]
    said = [read_dialogue(log, row).get("failure") or "" for row in last.itertuples()]
    rows = last.assign(said=said).to_dict("records")
    table = Table(f"The last {count(len(rows), 'failed dialogue')}, the newest first.", columns, rows)
    return [table] if rows else []


def _numbers(log: Log) -> dict[str, Any]:
    frame = log.frame
    names = [m.name for m in shown_in("step", "step end", "card") if m.name in frame and frame[m.name].notna().any()]
    return {**over_training(frame, names, log.kinds), "runs": runs(frame), "checkpoints": checkpoints(frame, names)}
