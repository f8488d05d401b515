"""Page of an experiment: results.html, README.md, figures, CSV per seed, and Parquet per run and game.

The page can be made again from the Parquet files. Its interpretation is written by hand (`Manifest.text`) and copied unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from slim_rl import __version__, files, provenance
from slim_rl.analysis import tables
from slim_rl.analysis.changes import by_arm, verdicts
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.page import Page, write_figures, write_numbers
from slim_rl.analysis.plays import HELD_OUT, HELD_OUT_VALUES, Plays
from slim_rl.errors import ConfigError
from slim_rl.formats import count, words
from slim_rl.lab.experiment import results as ex
from slim_rl.lab.experiment.contrasts import Manifest, load_manifest
from slim_rl.lab.experiment.earlier_runs import with_earlier_runs
from slim_rl.lab.experiment.figures import plots
from slim_rl.lab.gap import CAPTION, HEADING, LOSSES

METHOD = (
    "The unit is one number per run and held-out game. Intervals are over seeds and games (as if another seed played other games); over "
    "games, given that run, if there is one run; over seeds if a run has one number. Failed dialogues are left out."
)


def write(
    manifest_path: Path,
    output_dir: Path,
    command: str,
    values: Path | None = None,
    keep: bool = False,
    paper: bool = False,
) -> list[str]:
    """Writes the page of an experiment to `output_dir`, and returns its verdict in sentences.

    Args:
        values: folder of an earlier page whose values replace the logs; None: read the logs.
        keep: whether to keep values in `output_dir` of runs whose logs are missing; the manifest's `keep` also allows a folder without values.
        paper: whether to write each table as CSV, LaTeX and Markdown, too, and each figure as PDF.

    Raises:
        ConfigError, DataError: the manifest, its contrasts, its text or its logs are invalid.
    """
    provenance.here()  # before the page's files change the working tree
    manifest, contrasts = load_manifest(manifest_path)
    if not manifest.sources:
        raise ConfigError(f"{manifest_path} has no sources. Name the logs of at least one condition.")
    text = _by_hand(manifest.text)
    plays = Plays.read(values) if values else ex.read(manifest)
    if keep or (manifest.keep and (output_dir / HELD_OUT_VALUES).exists()):  # the first page has nothing to keep
        plays = with_earlier_runs(plays, Plays.read(output_dir))
    plays = replace(plays, treatment=manifest.treatment)
    measures = [name for name in manifest.measures if name in plays.held_out]
    rows = by_arm(plays, list(dict.fromkeys((*measures, "questions", "reward"))), HELD_OUT)
    compared = ex.compare(plays, manifest, contrasts)
    verdict = _sentences(manifest, rows, compared)
    forms = ("png", "pdf") if paper else ("png",)
    page = Page(
        title=manifest.title,
        sentences=verdict,
        figures=write_figures(output_dir, plots(), plays, contrasts, rows, first="primary", forms=forms),
        sections={
            **({"Contrasts": tables.contrasts(compared, manifest.preregistered)} if compared else {}),
            "Held-out games": _conditions(plays, manifest, rows, measures),
            **({HEADING: [_gap(plays)]} if "lost" in plays.held_out else {}),
        },
        origin=_origin(plays, manifest, manifest_path, command),
        method=METHOD,
        warnings=ex.left_out(plays, manifest),
        text=text,
    )
    files.write_atomically(output_dir / "runs.csv", ex.by_seed(plays, measures).to_csv(index=False))
    numbers = pd.DataFrame([{k: v for k, v in row.items() if k != "by_run"} for row in compared])
    files.write_atomically(output_dir / "contrasts.csv", numbers.to_csv(index=False))
    plays.write(output_dir)
    provenance.record(output_dir, again=True)
    results = {"verdict": verdict, "origin": page.origin, "contrasts": compared, "arms": rows}
    write_numbers(output_dir / "results.json", results)
    files.write_atomically(output_dir / "README.md", page.markdown())
    files.write_atomically(output_dir / "results.html", page.html())
    page.write_tables(output_dir, wanted=paper)
    return verdict


def _sentences(manifest: Manifest, rows: list[dict[str, Any]], compared: list[dict[str, Any]]) -> list[str]:
    """Returns the results of the primary contrasts, and then the verdict on the treatment."""
    sentences = []
    if primary := [row for row in compared if row["role"] == "primary"]:
        as_predicted = ex.as_predicted(manifest)
        by_result: dict[str, list[str]] = {as_predicted: []}
        for row in primary:
            by_result.setdefault(row["found"], []).append(row["name"])
        confirmed = by_result.pop(as_predicted)
        sentences.append(
            f"{len(confirmed)} of {count(len(primary), 'primary contrast')} {as_predicted}{_named(confirmed)}."
        )
        sentences += [f"{result.capitalize()}{_named(names)}." for result, names in by_result.items()]
    learned = [
        row["sentences"] for row in verdicts(rows) if (row["arm"], row["condition"]) == (manifest.treatment, HELD_OUT)
    ]
    if not sentences and not learned:
        return [f"No run of {manifest.treatment} was played before and after training."]
    return [*sentences, *(learned[0] if learned else [])]


def _named(names: Sequence[str]) -> str:
    return f": {'; '.join(names)}" if names else ""


def _by_hand(path: Path | None) -> str:
    if path is None:
        return (
            "Nothing has been written yet about what this shows, what it cannot, and what was chosen after looking.\n"
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"text={path} cannot be read ({error}). Write the interpretation of the experiment there."
        ) from error


def _origin(plays: Plays, manifest: Manifest, path: Path, command: str) -> str:
    runs = plays.held_out[plays.held_out["run"] != ""]["run"]
    seeds = sorted({ex.seed_of_run(run) for run in runs}, key=lambda seed: (len(seed), seed))
    file = path if isinstance(manifest.contrasts, list) else manifest.contrasts
    contrasts = f"Contrasts: `{file}`. " if manifest.contrasts else ""
    origins = manifest.origins or [
        f"{provenance.code_of(entry)}; {provenance.machine_of(entry)}" for entry in plays.provenance
    ]
    return (
        f"{count(runs.nunique(), 'run')}{', seeds ' if seeds else ''}{', '.join(seeds)}; "
        f"{' and '.join(dict.fromkeys(origins)) or 'origin unknown'}. "
        f"{contrasts}Page: `{command}`, slim_rl {__version__}."
    )


def _conditions(
    plays: Plays, manifest: Manifest, rows: Sequence[dict[str, Any]], measures: Sequence[str]
) -> list[tables.Table]:
    result = []
    dialogues = plays.counts.groupby("condition")["dialogues"].sum()
    for condition in dict.fromkeys(row["condition"] for row in rows):
        included = " (including training)" if condition == HELD_OUT else ""
        caption = (
            f"{words(condition).capitalize()}: before → after training, and the change with its 95% interval; "
            f"{dialogues[condition]:,} dialogues{included}. {'; '.join(manifest.source(condition))}."
        )
        selected = [row for row in rows if row["condition"] == condition]
        result.append(tables.held_out(selected, measures, caption, colours(plays.arms)))
    return result


def _gap(plays: Plays) -> tables.Table:
    rows = by_arm(plays, list(LOSSES), HELD_OUT)
    return tables.held_out(rows, list(LOSSES), CAPTION, colours(plays.arms), "condition")
