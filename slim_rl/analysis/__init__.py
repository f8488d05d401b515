"""Analysis of dialogue logs: `analyze(log_dirs, output_dir)` writes figures, numbers and a report.

load.py        log lines -> a frame, one row per dialogue; arms.py: which runs are seeds of one arm
summary.py     frame -> numbers, one dict; held_out.py: before and after training; verdict.py: the answer in sentences
report.py      numbers -> sections of tables (tables.py) and figures (figures.py)
page.py        sections, and a sample of dialogues (dialogues.py) -> one HTML file
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAX_DIALOGUES = 200


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
    price: float = 0.0,
    paper: bool = False,
    seconds: int = 0,
    command: str = "slim_rl.analysis.analyze",
) -> Summary:
    """Reads all dialogue logs at or below `log_dirs`; writes report.html, summary.json and the figures to `output_dir`.

    Args:
        seed: seed of the sample of dialogues in the report, and of the games of reference lines.
        max_dialogues: maximum number of dialogues to read on the page; figures and tables use all.
        references: DialOp's file of human games, for a reference line; None: no such line.
        tokenizer: model folder, to show logged token ids as text; None: the policy's, if it is found.
        price: question cost in reward, for sections of other packages (`report.register`).
        paper: whether to write each table as CSV, too, and each figure as PDF.
        seconds: time after which the page loads itself again; 0: never.
        command: command line of this call, for the record.

    Raises:
        DataError: there is no dialogue, or `references` cannot be used.
    """
    from slim_rl import __version__
    from slim_rl.analysis import report as on_logs
    from slim_rl.analysis import summary as numbers
    from slim_rl.analysis.dialogues import collect
    from slim_rl.analysis.load import load
    from slim_rl.analysis.page import write_figures, write_numbers
    from slim_rl.files import write_atomically

    output_dir = Path(output_dir)
    log = load(log_dirs)
    added = [make(log, price) for make in on_logs.SECTIONS]
    results = {
        "version": __version__,
        "command": command,
        "files": [{**asdict(file), "path": str(file.path)} for file in log.files],
        "warnings": log.warnings,
        "provenance": log.provenance,
        "seed": seed,
        **numbers.summarise(log.frame, log.kinds),
        **{name: entry for section in added for name, entry in section.numbers.items()},
        **numbers.references(log, seed, references),
        "partners": numbers.partners_of(log.frame),
        "sampled": min(max_dialogues, len(log.frame)),
    }
    sections = on_logs.sections(results, added)
    pictures = write_figures(output_dir, sections, results, forms=("png", "svg", *(["pdf"] if paper else [])))
    page = on_logs.page(results, sections, pictures, collect(log, max_dialogues, seed, tokenizer), seconds)
    summary, report = output_dir / "summary.json", output_dir / "report.html"
    write_numbers(summary, results)
    write_atomically(report, page.html())
    if paper:
        page.write_tables(output_dir)
    return Summary(results, report, summary, {name: output_dir / f"{name}.png" for name in pictures})
