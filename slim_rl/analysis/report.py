"""Page of the log report, built from the numbers of `summary`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl import provenance
from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.compared import sentence_of
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.page import Card, Page, Picture
from slim_rl.analysis.report_tables import Tables
from slim_rl.analysis.sections import Section
from slim_rl.analysis.verdict import by_how_much, direction
from slim_rl.dialogue.measures import MEASURES
from slim_rl.formats import NOT_MEASURED, count, interval, known, plain, sentence, words

TITLE = "What did the policy learn to ask?"
MOST_SOURCES = 3  # commands listed on the first screen
MOST_PAIRS = 3  # pairs of cells listed on the first screen; the table has all
METHOD = (
    "Dialogues are not independent: a game is played several times. Intervals are therefore over games, given these runs (clustered "
    "errors for means, Wilson's form for shares), or over seeds and games if an arm has several runs (as if another seed played other "
    "games). Failed dialogues have no reward; only the stop reasons count them."
)


def page(
    results: Mapping[str, Any], figures: Sequence[Picture], viewer: Mapping[str, Any], added: Sequence[Section] = ()
) -> Page:
    """Returns the page from the results, the figures, the viewer's data and the sections of other packages."""
    tables = Tables(results)
    return Page(
        title=TITLE,
        lead=_lead(results),
        figures=figures,
        sections=tables.sections(added),
        warnings=results["warnings"],
        method=METHOD,
        origin=_origin(results),
        sample=_sample(results, viewer),
        dialogues={**viewer, "kinds": results["question_kinds"], "colours": colours(results["arms"])},
        sources=[tables.files()],
        **_answer(results, tables),
    )


def _origin(results: Mapping[str, Any]) -> str:
    sources = [provenance.sentence(entry) for entry in results["provenance"]]
    rest = len(sources) - MOST_SOURCES
    more = [f"{count(rest, 'more command')}: in `summary.json`."] if rest > 0 else []
    played = ["The dialogues:", *sources[:MOST_SOURCES], *more] if sources else []
    page = f"Made by slim_rl {results['version']} with `{results['command']}`. All numbers are in `summary.json`."
    return " ".join([page, *played])


def _answer(results: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """Returns the answer from held-out games before and after training, else from training, else from an evaluation."""
    tables_after = [tables.partners(), tables.references()]
    if results["verdict"]:
        main = results["verdict"][0]
        rows = [row for row in results["held_out"] if all(row[k] == main[k] for k in ("arm", "condition"))]
        several = len(results["verdict"]) > 1
        about = f"Arm {words(main['arm'])}, held-out games, partner {words(main['condition'])}:"
        return {
            "sentences": [*main["sentences"], *_faults_of_partner(results, main)],
            "about": about if several else "",
            "cards": [_card(results, row) for row in rows if "first screen" in MEASURES[row["measure"]].shown],
            "tables": [*([tables.held_out()] if several else []), tables.training(), *tables_after],
        }
    if results["counts"]["train"]:
        sentence = (
            "No held-out games were played both before and after training: see the figure and table on training below."
        )
        if not any(results["curves"].values()):
            sentence = "No training dialogue has a reward: see the stop reasons below."
        return {"sentences": [sentence], "tables": [tables.training(), *tables_after]}
    compared = results["compared"]
    pairs = [{**row, "measure": name} for name, row in compared[0]["measures"].items()] if len(compared) == 1 else []
    return {
        "sentences": list(_evaluated(results)),
        "cards": [_card(results, row) for row in pairs],
        "tables_first": [tables.held_out(), *([tables.compared()] if compared else [])],
        "tables": tables_after,
    }


def _faults_of_partner(results: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence on the partner's faults in held-out games, and the reward of dialogues without any."""
    played = (main["arm"], main["condition"])
    ends = [
        row for row in results["partner_faults"] if (row["arm"], row["partner"]) == played and row["phase"] != TRAIN
    ]
    if not ends:
        return
    before, after = ends[0], ends[-1]
    faults = [
        f"{name}, {part['faults']:,} of {count(part['cases'], 'time')} ({plain(part['faults'] / part['cases'], share=True)})"
        for name, part in after["faults"].items()
        if part["faults"]
    ]
    if faults or any(part["faults"] for part in before["faults"].values()):
        rewards = [
            f"{plain(row['clean_reward']['value'])} in {count(row['clean'], 'dialogue')}" for row in (before, after)
        ]
        yield (
            f"Partner faults after training: {'; '.join(faults) or 'none'}. Reward of dialogues without any: from {rewards[0]} to "
            f"{rewards[1]}."
        )


def _card(results: Mapping[str, Any], row: Mapping[str, Any]) -> Card:
    measure = results["measures"][row["measure"]]
    share = measure["share"]
    sign = {"up": 1, "down": -1, "": 0}[measure["better"]]
    trend = {1: "gain", 0: "", -1: "loss"}[sign * direction(row)] if known(row["low"]) else ""
    before, after = (plain(row[side], share) for side in ("before", "after"))
    if not known(row["after"]):
        return Card(sentence(measure["title"]), "", NOT_MEASURED, "", "")
    over = f", over {row['over']}" if known(row["low"]) else ""
    return Card(sentence(measure["title"]), before, after, by_how_much(row, share) + over, trend)


def _evaluated(results: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences on an evaluation."""
    counts = results["counts"]
    yield f"Evaluation: {count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}; these logs have no training."
    rows = [row for row in results["held_out"] if known(row["after"])]
    if len(rows) <= len({row["measure"] for row in rows}):
        return
    if pairs := results["compared"]:
        yield from map(sentence_of, pairs[:MOST_PAIRS])
        return
    for measure, what in (("reward", "reward"), ("questions", "questions per game")):
        scored = [row for row in rows if row["measure"] == measure]
        if len(scored) < 2:
            continue
        top, bottom = (pick(scored, key=lambda row: row["after"]) for pick in (max, min))
        parts = [
            f"{words(row['arm'])} {plain(row['after'])} ({interval(row['after_low'], row['after_high'])})"
            for row in (top, bottom)
        ]
        yield f"Highest {what}: {parts[0]}; lowest: {parts[1]}."


def _lead(results: Mapping[str, Any]) -> str:
    counts = results["counts"]
    arms = count(len(results["arms"]), "arm")
    dialogues = f"{count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}"
    return f"{dialogues} in {count(len(results['runs']), 'run')} and {arms}."


def _sample(results: Mapping[str, Any], viewer: Mapping[str, Any]) -> str:
    shown, total = len(viewer["dialogues"]), results["counts"]["dialogues"]
    if shown == total:
        return f"All {total:,} dialogues."
    logs = " ".join(
        shlex.quote(folder) for folder in sorted({str(Path(file["path"]).parent) for file in results["files"]})
    )
    return (
        f"{shown:,} of {total:,} dialogues, spread over arms, runs, steps and stop reasons. Figures and tables use all. To show the "
        f"others in a terminal: slim-rl show {logs}."
    )
