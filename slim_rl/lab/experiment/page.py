"""Page of an experiment: results.html, README.md, figures, CSV per seed, and Parquet per run and game.

The page can be made again from the Parquet files. Its interpretation is written by hand (`Manifest.text`) and copied unchanged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from slim_rl import __version__, files, provenance
from slim_rl.analysis.figures import colours
from slim_rl.analysis.held_out import by_arm, comparable
from slim_rl.analysis.page import Page, Section, write_figures, write_numbers
from slim_rl.analysis.report import held_out as table_of
from slim_rl.analysis.tables import Table, value
from slim_rl.analysis.verdict import verdicts
from slim_rl.errors import ConfigError
from slim_rl.formats import DASH, count, known, p_value, words
from slim_rl.lab.experiment import TEXTS
from slim_rl.lab.experiment import results as ex
from slim_rl.lab.experiment.contrasts import HELD_OUT, Manifest, load_manifest
from slim_rl.lab.experiment.figures import PLOTS
from slim_rl.lab.experiment.results import Plays
from slim_rl.lab.gap import LOSSES
from slim_rl.lab.sections import gap_section


def write(
    manifest_path: Path, output_dir: Path, command: str, values: Sequence[Path] = (), paper: bool = False
) -> list[str]:
    """Writes the page of an experiment to `output_dir`, and returns its verdict in sentences.

    Args:
        values: folders of earlier pages whose values, together, replace the logs; none: read the logs.
        paper: whether to write each table as CSV, too, and each figure as PDF.

    Raises:
        ConfigError, DataError: the manifest, its contrasts, its text or its logs are invalid.
    """
    provenance.here()  # before the page's files change the working tree
    manifest, contrasts = load_manifest(manifest_path)
    if not manifest.sources:
        raise ConfigError(f"{manifest_path} has no sources. Name the logs of at least one condition.")
    text = _by_hand(manifest.text)
    plays = ex.joined([Plays.read(each, manifest.treatment) for each in values]) if values else ex.read(manifest)
    measures = [name for name in manifest.measures if name in plays.held_out]
    drawn = [each.measure for each in contrasts.contrasts if each.role == "primary" and each.measure in plays.held_out]
    named = list(dict.fromkeys((*measures, *drawn, "questions", "reward")))
    rows = by_arm(plays.held_out, named, HELD_OUT, plays.treatment)
    compared = ex.compare(plays, manifest, contrasts)
    verdict = _sentences(manifest, rows, compared)
    sections = [
        Section("Contrasts", tables=_contrasts(compared, manifest.preregistered, len(contrasts.elsewhere))),
        Section("Held-out games", tables=_conditions(manifest, rows), plots=PLOTS),
    ]
    if "lost" in plays.held_out:
        sections.append(gap_section(by_arm(plays.held_out, list(LOSSES), HELD_OUT, plays.treatment), "condition"))
    page = Page(
        title=manifest.title,
        sentences=verdict,
        sections=sections,
        pictures=write_figures(
            output_dir, sections, plays, contrasts, rows, forms=("png", "pdf") if paper else ("png",)
        ),
        origin=_origin(plays, manifest, manifest_path, command),
        method=TEXTS["method"],
        colours=colours(plays.arms),
        warnings=ex.left_out(plays, manifest),
        text=text,
    )
    files.write_atomically(output_dir / "runs.csv", ex.by_seed(plays, measures).to_csv(index=False))
    numbers = pd.DataFrame(compared).drop(columns="by_run", errors="ignore")
    files.write_atomically(output_dir / "contrasts.csv", numbers.to_csv(index=False))
    plays.write(output_dir)
    provenance.record(output_dir, again=True)
    results = {"verdict": verdict, "origin": page.origin, "contrasts": compared, "arms": rows}
    write_numbers(output_dir / "results.json", results)
    files.write_atomically(output_dir / "README.md", page.markdown())
    files.write_atomically(output_dir / "results.html", page.html())
    if paper:
        page.write_tables(output_dir)
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
        return f"{TEXTS['nothing_written']}\n"
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
    stated = [f"commit {manifest.commit}" if manifest.commit else "", manifest.machine]
    logged = [f"{provenance.code_of(entry)}; {provenance.machine_of(entry)}" for entry in plays.provenance]
    origins = ["; ".join(filter(None, stated))] if any(stated) else logged
    return (
        f"{count(runs.nunique(), 'run')}{', seeds ' if seeds else ''}{', '.join(seeds)}; "
        f"{' and '.join(dict.fromkeys(origins)) or 'origin unknown'}. "
        f"{contrasts}Page: `{command}`, slim_rl {__version__}."
    )


def _conditions(manifest: Manifest, rows: Sequence[dict[str, Any]]) -> list[Table]:
    how = "before → after training, and the change with its 95% interval"
    return [
        table_of(
            [row for row in rows if row["condition"] == condition],
            f"{words(condition).capitalize()}: {how}. {manifest.sources[condition].command}.",
        )
        for condition in dict.fromkeys(row["condition"] for row in rows)
    ]


def _contrasts(compared: Sequence[dict[str, Any]], preregistered: bool, elsewhere: int) -> list[Table]:
    """Returns the tables of the contrasts of `results.compare`, primary ones first."""
    when = "preregistered" if preregistered else "chosen after runs had been seen"
    primary = [row for row in compared if row["role"] == "primary"]
    secondary = [row for row in compared if row["role"] != "primary"]
    holm = f"Holm p is corrected for all {len(primary) + elsewhere} contrasts of this family, including those not run."
    name = "Secondary contrasts" if primary else "Contrasts"
    return [
        Table(f"Primary contrasts, {when}. {TEXTS['contrasts']} {holm}", [_contrast(row) for row in primary]),
        Table(f"{name}, {when}; uncorrected. {TEXTS['contrasts']}", [_contrast(row) for row in secondary]),
    ]


def _contrast(row: dict[str, Any]) -> dict[str, str]:
    """Returns a contrast's row; its result is next to its name, to be visible in a narrow window."""
    primary = (
        {"Holm p": p_value(row["p_holm"]), "minimum Holm p": _minimum(row["least_holm"])} if "p_holm" in row else {}
    )
    return {
        "contrast": row["name"],
        "result": row["found"] + (f"; {row['note']}" if row["note"] and row["note"] != row["found"] else ""),
        "measure": words(row["measure"]),
        "compared": f"{row['a']} − {row['b']}" if row["b"] != "zero" else row["a"],
        "predicted": row["direction"] + (f" (±{row['margin']})" if row["margin"] else ""),
        "difference": value(row, comparable()[row["measure"]].share, signed=True),
        "interval over": row["over"],
        "seeds": " + ".join(map(str, row["runs"])),
        "p, interval": p_value(row["p_crossed"]),
        "p, permutation": p_value(row["p_permutation"]),
        "minimum p": _minimum(row["least"]),
        **primary,
    }


def _minimum(p: float) -> str:
    return f"{p:.3g}" if known(p) else DASH
