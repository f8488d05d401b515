"""Analysis of dialogue logs: `analyze(log_dirs, output_dir)` writes figures, numbers and a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from slim_rl.errors import DataError

MAX_DIALOGUES = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of an analysis and the files it wrote.

    Attributes:
        results: all numbers, as in summary.json (NaN for its null).
        report, summary: paths of the files.
        figures: path of each PNG, by name; an SVG of the same name is next to it.
    """

    results: dict[str, Any]
    report: Path
    summary: Path
    figures: dict[str, Path]


def analyze(
    log_dirs: Sequence[str | Path],
    output_dir: str | Path,
    *,
    seed: int = 0,
    max_dialogues: int = MAX_DIALOGUES,
    references: Path | None = None,
    tokenizer: Path | None = None,
    overwrite: bool = False,
    price: float = 0.0,
    paper: bool = False,
    command: str = "slim_rl.analysis.analyze",
) -> Summary:
    """Reads all dialogue logs at or below `log_dirs`; writes report.html, summary.json and the figures to `output_dir`.

    Args:
        seed: seed of the permutation tests and of the sample of dialogues in the report.
        max_dialogues: maximum number of dialogues in the viewer; figures and tables use all.
        references: DialOp's file of human games, for a reference line; None: no such line.
        tokenizer: model folder, to show logged token ids as text; None: the policy's, if it is found.
        overwrite: whether a report on other logs in `output_dir` may be replaced; one on the same logs always may.
        price: question cost in reward, for sections of other packages (`sections.register`).
        paper: whether to write each table as CSV, LaTeX and Markdown, too, and each figure as PDF.
        command: command line of this call, for the record.

    Raises:
        DataError: there is no dialogue, `references` or `tokenizer` cannot be used, or `output_dir` holds a report on other
            logs.
    """
    from slim_rl import __version__
    from slim_rl.analysis import references as lines
    from slim_rl.analysis import report as on_logs
    from slim_rl.analysis import viewer
    from slim_rl.analysis.figures import PLOTS
    from slim_rl.analysis.load import load
    from slim_rl.analysis.page import write_figures, write_numbers
    from slim_rl.analysis.sections import SECTIONS
    from slim_rl.analysis.summary import MANY, summarise
    from slim_rl.dialogue.log import log_files
    from slim_rl.files import write_atomically

    output_dir = Path(output_dir)
    logs = sorted({os.path.relpath(Path(log).resolve(), output_dir.resolve()) for log in log_dirs})
    log_files(*log_dirs)  # raises first if a folder is missing
    if not overwrite:
        _check_output(output_dir, logs)
    decode = viewer.token_decoder(tokenizer) if tokenizer else None
    log = load(log_dirs)
    environment, games = lines.games_of(log, seed)
    added = [make(log, price) for make in SECTIONS]
    results = {
        "version": __version__,
        "command": command,
        "logs": logs,
        "files": [{**asdict(file), "path": str(file.path)} for file in log.files],
        "warnings": log.warnings,
        "provenance": log.provenance,
        **summarise(log.frame, seed=seed, kinds=log.kinds),
        **{name: numbers for section in added for name, numbers in section.numbers.items()},
        "references": lines.reference_lines(games, references, environment),
        "frontier": lines.frontier_curves(games, MANY, seed, environment),
    }
    shown = viewer.collect(log, max_dialogues, seed, decode)
    results["sampled"] = len(shown["dialogues"])
    plots = {name: plot for part in (PLOTS, *(section.plots for section in added)) for name, plot in part.items()}
    forms = ("png", "svg", *(["pdf"] if paper else []))
    drawn = write_figures(output_dir, plots, results, first="training", forms=forms)
    summary, report = output_dir / "summary.json", output_dir / "report.html"
    write_numbers(summary, results)
    page = on_logs.page(results, drawn, shown, added)
    write_atomically(report, page.html())
    page.write_tables(output_dir, wanted=paper)
    return Summary(results, report, summary, {picture.name: output_dir / f"{picture.name}.png" for picture in drawn})


def _check_output(folder: Path, logs: Sequence[str]) -> None:
    """Raises DataError if the folder holds a report on other logs, according to its summary.json (relative paths)."""
    if not any((folder / name).exists() for name in ("report.html", "summary.json")):
        return
    try:
        previous = orjson.loads((folder / "summary.json").read_bytes())["logs"]
    except (OSError, ValueError, LookupError, TypeError):
        previous = None
    if previous != list(logs):
        raise DataError(
            f"{folder} holds a report on other logs. Name another folder with --output, or replace it with --overwrite (in Python, "
            "overwrite=True)."
        )
