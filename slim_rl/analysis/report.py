"""The page of a report on logs: the answer, from the numbers of `summary`."""

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
MOST_SOURCES = 3  # commands that the first screen names
MOST_PAIRS = 3  # that the first screen names; its table has them all
METHOD = (
    "A dialogue is not an independent draw: a game is played several times. Intervals are therefore over games, given these runs "
    "(clustered errors for means, Wilson's form for shares), or, where an arm has several runs, over seeds and games: what another seed, "
    "on other games, is expected to show. Failed dialogues have no reward and count among the stop reasons only."
)


def page(
    results: Mapping[str, Any], figures: Sequence[Picture], viewer: Mapping[str, Any], added: Sequence[Section] = ()
) -> Page:
    """Returns the page, from the results dict, the figures, the viewer's data and the sections of other packages."""
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
    made = [provenance.sentence(entry) for entry in results["provenance"]]
    more = (
        [f"{count(len(made) - MOST_SOURCES, 'more command')}: in `summary.json`."] if len(made) > MOST_SOURCES else []
    )
    played = ["The dialogues:", *made[:MOST_SOURCES], *more] if made else []
    page = f"Made by slim_rl {results['version']} with `{results['command']}`. All numbers are in `summary.json`."
    return " ".join([page, *played])


def _answer(results: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """From held-out games before and after training; without them from training; without it of an evaluation."""
    tables_after = [tables.partners(), tables.references()]
    if results["verdict"]:
        chief = results["verdict"][0]
        rows = [row for row in results["held_out"] if all(row[k] == chief[k] for k in ("arm", "condition"))]
        several = len(results["verdict"]) > 1
        about = f"Arm {words(chief['arm'])}, held-out games with the partner {words(chief['condition'])}:"
        return {
            "sentences": [*chief["sentences"], *_partners_part(results, chief)],
            "about": about if several else "",
            "cards": [_card(results, row) for row in rows if "first screen" in MEASURES[row["measure"]].shown],
            "tables": [*([tables.held_out()] if several else []), tables.training(), *tables_after],
        }
    if results["counts"]["train"]:
        said = "There are no held-out games before and after training: what changed over it is in the figure and the table below."
        if not any(results["curves"].values()):
            said = "No dialogue of training has a reward, so nothing can be said of it: the table of how dialogues ended says why."
        return {"sentences": [said], "tables": [tables.training(), *tables_after]}
    compared = results["compared"]
    pairs = [{**row, "measure": name} for name, row in compared[0]["measures"].items()] if len(compared) == 1 else []
    return {
        "sentences": list(_evaluated(results)),
        "cards": [_card(results, row) for row in pairs],
        "tables_first": [tables.held_out(), *([tables.compared()] if compared else [])],
        "tables": tables_after,
    }


def _partners_part(results: Mapping[str, Any], chief: Mapping[str, Any]) -> Iterator[str]:
    """What the partner did wrongly in the held-out games, if it did, and the reward without the dialogues in which it did."""
    played = (chief["arm"], chief["condition"])
    ends = [
        row for row in results["partner_faults"] if (row["arm"], row["partner"]) == played and row["phase"] != TRAIN
    ]
    if not ends:
        return
    before, after = ends[0], ends[-1]
    told = [
        f"{name}, {part['faults']:,} of {count(part['cases'], 'time')} ({plain(part['faults'] / part['cases'], share=True)})"
        for name, part in after["faults"].items()
        if part["faults"]
    ]
    if told or any(part["faults"] for part in before["faults"].values()):
        rewards = [
            f"{plain(row['clean_reward']['value'])} in {count(row['clean'], 'dialogue')}" for row in (before, after)
        ]
        yield (
            f"The partner's own faults after training: {'; '.join(told) or 'none'}. Reward where it made none: from {rewards[0]} to "
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
    """An evaluation in sentences."""
    counts = results["counts"]
    yield f"Evaluation: {count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}; no training is in these logs."
    rows = [row for row in results["held_out"] if known(row["after"])]
    if len(rows) <= len({row["measure"] for row in rows}):
        return
    if pairs := results["compared"]:
        yield from map(sentence_of, pairs[:MOST_PAIRS])
        return
    for measure, what in (("reward", "reward"), ("questions", "questions a game")):
        scored = [row for row in rows if row["measure"] == measure]
        if len(scored) < 2:
            continue
        top, bottom = (pick(scored, key=lambda row: row["after"]) for pick in (max, min))
        parts = [
            f"{words(row['arm'])} {plain(row['after'])} ({interval(row['after_low'], row['after_high'])})"
            for row in (top, bottom)
        ]
        yield f"Most {what}: {parts[0]}; least: {parts[1]}."


def _lead(results: Mapping[str, Any]) -> str:
    counts = results["counts"]
    arms = count(len(results["arms"]), "arm")
    of = f"{count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}"
    return f"{of} in {count(len(results['runs']), 'run')} and {arms}."


def _sample(results: Mapping[str, Any], viewer: Mapping[str, Any]) -> str:
    shown, total = len(viewer["dialogues"]), results["counts"]["dialogues"]
    if shown == total:
        return f"All {total:,} dialogues."
    logs = " ".join(
        shlex.quote(folder) for folder in sorted({str(Path(file["path"]).parent) for file in results["files"]})
    )
    return (
        f"{shown:,} of {total:,} dialogues, spread over arms, runs, steps and stop reasons; figures and tables count all of them. "
        f"The others are in the log, and shown in a terminal by slim-rl show {logs}."
    )
