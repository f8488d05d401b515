"""The page of an experiment: results.html and README.md from the same tables, figures beside them, and CSV of every number a seed.

What it shows and cannot show is written by hand (`Manifest.text`) and stands on the page as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from slim_rl import __version__
from slim_rl.analysis import experiment as ex
from slim_rl.analysis import figure_style, pages
from slim_rl.analysis.contrasts import COMPARABLE, HELD_OUT, Manifest, load_manifest
from slim_rl.analysis.experiment_figures import draw
from slim_rl.analysis.report_tables import Cell, Column, Table, number, p_of, prose, with_interval
from slim_rl.analysis.verdict import by_how_much, sentences
from slim_rl.errors import ConfigError
from slim_rl.files import write_atomically
from slim_rl.formats import DASH, count, interval, known, plain, sentence, words

CAPTIONS = {
    "primary": "The arms that the primary contrasts compare, over training. Thin lines: single seeds; thick: their mean.",
    "arms": "Where each arm ended on held-out games, with 95% intervals over seeds and games. Small dots: single seeds; hollow: the start.",
    "doses": "What the trained policies did against the dose. Small dots: single seeds; line: their means.",
    "forced": "Reward on held-out games after so many questions asked for the policy, before training (dashed) and after. Bars: 95% "
    "intervals over seeds and games.",
    "transfer": "Held-out games in each condition, before training (hollow) and after, with 95% intervals over seeds and games.",
}


def _caption(name: str) -> str:
    """A figure's; those of single measures say their title."""
    over = "over training. Thin lines: single seeds; thick: their mean."
    return CAPTIONS.get(name) or f"{sentence(COMPARABLE[name].title)} {over}"


def write(manifest_path: Path, output_dir: Path, command: str) -> list[str]:
    """Writes the page of an experiment to `output_dir`; returns its verdict in sentences.

    Raises:
        ConfigError, DataError: the manifest, its contrasts, its text or its logs cannot be used.
    """
    manifest, contrasts = load_manifest(manifest_path)
    text = _by_hand(manifest.text)
    plays = ex.read(manifest)
    measures = [name for name in manifest.measures if name in plays.held_out]
    rows = ex.by_arm(plays, list(dict.fromkeys((*measures, "questions", "reward"))))
    compared = ex.compare(plays, manifest, contrasts)
    found = {(row["arm"], row["condition"], row["measure"]): row for row in rows}
    chief = [found.get((manifest.treatment, HELD_OUT, name)) for name in ("questions", "reward")]
    said = sentences(*chief) if all(chief) else [f"There is no run of {manifest.treatment}."]  # type: ignore[arg-type]
    runs = plays.held_out[plays.held_out["run"] != ""]
    seeds = sorted({ex.seed_of_run(run) for run in runs["run"]}, key=lambda seed: (len(seed), seed))
    origin = (
        f"{count(runs['run'].nunique(), 'run')}, seeds {', '.join(seeds)}; commit {manifest.commit}; {manifest.machine}. "
        f"Contrasts: `{manifest.contrasts}`. Page: `{command}`, slim_rl {__version__}."
    )
    tables = _tables(plays, manifest, compared, rows, measures)
    output_dir.mkdir(parents=True, exist_ok=True)
    svgs = {}
    with figure_style.style():
        for name, figure in draw(plays, contrasts, rows).items():
            png, svg = figure_style.to_bytes(figure, "png", "svg")
            write_atomically(output_dir / f"{name}.png", png)
            svgs[name] = svg.decode()
    write_atomically(output_dir / "runs.csv", ex.by_seed(plays, measures).to_csv(index=False))
    write_atomically(output_dir / "contrasts.csv", pd.DataFrame(compared).drop(columns="by_run").to_csv(index=False))
    numbers = {"verdict": said, "origin": origin, "contrasts": compared, "arms": rows}
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    write_atomically(output_dir / "results.json", orjson.dumps(numbers, option=options))  # NaN becomes null
    parts: dict[str, Any] = {"title": manifest.title, "sentences": said, "warnings": plays.warnings, "tables": tables}
    write_atomically(output_dir / "README.md", _markdown(**parts, origin=origin, text=text, figures=list(svgs)))
    marked = MarkdownIt("commonmark", {"html": False})
    page = pages.render(
        "results.html",
        **parts,
        origin=Markup(marked.renderInline(origin)),
        text=Markup(marked.render(text)),
        figures=[pages.picture(name, svg, _caption(name)) for name, svg in svgs.items()],
    )
    write_atomically(output_dir / "results.html", page)
    return said


def _by_hand(path: Path | None) -> str:
    if path is None:
        return (
            "Nothing has been written yet about what this shows, what it cannot, and what was chosen after looking.\n"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"text: {path} cannot be read ({error}); write what the experiment shows in it.") from error


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(
    plays: ex.Plays,
    manifest: Manifest,
    compared: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, Any]],
    measures: Sequence[str],
) -> list[Table]:
    primary = [row for row in compared if row["role"] == "primary"]
    secondary = [row for row in compared if row["role"] != "primary"]
    least = f"Holm p is corrected for all {len(primary)} of this family, those not run included."
    when = "as written down before the runs" if manifest.preregistered else "chosen after runs had been seen"
    tables = [
        Table(caption, _contrast_columns(chief), rows_of)
        for caption, chief, rows_of in (
            (f"Primary contrasts, {when}. {_HOW} {least}", True, primary),
            (f"{'Secondary contrasts' if primary else 'Contrasts'}, {when}; uncorrected. {_HOW}", False, secondary),
        )
        if rows_of
    ]
    for condition in dict.fromkeys(row["condition"] for row in rows):
        by_arm: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["condition"] == condition:
                by_arm.setdefault(row["arm"], {"arm": row["arm"], "runs": row["runs"]})[row["measure"]] = row
        columns = [
            Column("arm", lambda row: words(row["arm"]), prose=True),
            number("runs", "seeds"),
        ]
        columns += [Column(_title(name), _moved(name)) for name in measures]
        about = manifest.source(condition)
        caption = (
            f"{words(condition).capitalize()}: before → after training, and the change with its 95% interval over seeds and games; "
            f"{plays.counts[condition]:,} dialogues. {about['command']}; commit {about['commit']}; {about['machine']}."
        )
        tables.append(Table(caption, columns, list(by_arm.values())))
    return [table for table in tables if table.rows]


_HOW = (
    "Difference with its 95% interval over seeds and games; p: the larger of that interval's test and a permutation over seeds; "
    "least p: the smallest that so many seeds allow."
)


def _contrast_columns(family: bool) -> list[Column]:
    holm = [
        p_of("p_holm", "Holm p"),
        Column("least Holm p", lambda row: _least(row["least_holm"])),
    ]
    return [
        prose("name", "contrast"),
        Column(
            "measure",
            lambda row: words(row["measure"]) + (f", step it reaches {row['reaches']}" if row["reaches"] else ""),
            prose=True,
        ),
        Column("", lambda row: f"{row['a']} − {row['b']}" if row["b"] != "zero" else row["a"], prose=True),
        Column(
            "predicted", lambda row: row["direction"] + (f" (±{row['margin']})" if row["margin"] else ""), prose=True
        ),
        Column("difference", _difference),
        Column("seeds", lambda row: " + ".join(map(str, row["runs"]))),
        p_of("p_crossed", "p, seeds and games"),
        p_of("p_permutation", "p, permutation"),
        Column("least p", lambda row: _least(row["least"])),
        *(holm if family else []),
        Column(
            "found",
            lambda row: row["found"] + (f"; {row['note']}" if row["note"] and row["note"] != row["found"] else ""),
            prose=True,
        ),
    ]


def _least(p: float) -> str:
    return f"{p:.3g}" if known(p) else DASH


def _difference(row: Mapping[str, Any]) -> Cell:
    return with_interval(row, COMPARABLE[row["measure"]].share, signed=True)


def _title(measure: str) -> str:
    return COMPARABLE[measure].heading


def _moved(measure: str) -> Callable[[Mapping[str, Any]], str | Cell]:
    share = COMPARABLE[measure].share

    def show(row: Mapping[str, Any]) -> str | Cell:
        part = row.get(measure)
        if part is None or not known(part["after"]):
            return DASH
        if not known(part["before"]):
            return Cell(plain(part["after"], share), interval(part["after_low"], part["after_high"], share))
        aside = by_how_much(part, share).replace(", 95% interval", ",")
        return Cell(f"{plain(part['before'], share)} → {plain(part['after'], share)}", aside)

    return show


# -- README.md ---------------------------------------------------------------------------------------------------------


def _markdown(
    title: str,
    sentences: Sequence[str],
    origin: str,
    warnings: Sequence[str],
    text: str,
    tables: Sequence[Table],
    figures: Sequence[str],
) -> str:
    drawn = [f"![{_caption(name)}]({name}.png)\n\n{_caption(name)}" for name in figures]
    parts = [f"# {title}", "\n".join(f"- {said}" for said in sentences), *drawn[:1], origin, text.strip(), *warnings]
    parts += [f"{_of_markdown(table)}\n\n{table.caption}" for table in tables]
    return "\n\n".join((*parts, *drawn[1:])) + "\n"


def _of_markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def cell(shown: str | Cell) -> str:
        return shown if isinstance(shown, str) else f"{shown.text} ({shown.aside})" if shown.aside else shown.text

    rule = ["---" if column.prose else "---:" for column in table.columns]
    rows = [[cell(column.show(row)) for column in table.columns] for row in table.rows]
    return "\n".join(map(line, [[column.head for column in table.columns], rule, *rows]))
