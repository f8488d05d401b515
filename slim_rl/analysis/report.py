"""report.html: one file that opens from disk, with everything in it and nothing fetched. The answer comes first.

The invariant: everything in a log (names, dialogue text, failure messages) is treated as text. The template escapes all it is
given; the viewer's data is compressed and in base64, which no `</script>` can end; the page's content policy runs the one script it
was made with and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import orjson
from markupsafe import Markup

from slim_rl.analysis import pages
from slim_rl.analysis.compared import sentence_of
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.load import TRAIN
from slim_rl.analysis.plots import PLOTS
from slim_rl.analysis.report_tables import Table, Tables
from slim_rl.analysis.verdict import by_how_much, direction
from slim_rl.dialogue.measures import MEASURES
from slim_rl.formats import count, interval, known, p_value, per_steps, plain, sentence, words

TITLE = "What did the policy learn to ask?"
SCRIPTS = ("dom.js", "list.js", "board.js", "dialogue.js", "main.js")  # one script, in this order
MOST_PAIRS = 3  # that the first screen names; its table has them all


@dataclass(frozen=True, slots=True)
class Card:
    """A measure before and after; `trend` is "rose", "fell" or empty."""

    title: str
    before: str
    after: str
    change: str
    trend: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The first screen: sentences, cards, tables above and below the training figure; `open`: trends are shown at once."""

    sentences: list[str]
    about: str = ""
    cards: list[Card] = field(default_factory=list)
    tables_first: list[Table] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    open: bool = False


def render(
    results: Mapping[str, Any],
    svgs: Mapping[str, str],
    viewer: Mapping[str, Any],
    narrow: Mapping[str, str],
) -> str:
    """The page, from the results dict, the figures as SVG (and those for narrow screens) and the viewer's data."""
    folder = files("slim_rl.analysis") / "page"
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    tables = Tables(results)
    figures = {
        name: pages.picture(name, svg, _caption(name, results), wide=PLOTS[name].wide, narrow=narrow.get(name, ""))
        for name, svg in svgs.items()
    }
    several = any(known(row["runs_low"]) for row in results["trends"])
    return pages.render(
        "report.html",
        title=TITLE,
        lead=_lead(results),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        answer=_answer(results, tables),
        findings=list(_findings(results)),
        basis="the wider of those over games and over runs"
        if several
        else "over games; one run says nothing of other seeds",
        warnings=results["warnings"],
        first_figure=figures.pop("training", None),
        figures=list(figures.values()),
        sections=tables.sections(),
        sample=_sample(results, viewer),
        method=_method(results),
        version=results["version"],
        command=results["command"],
        files=tables.files(),
        data=packed({**viewer, "kinds": results["question_kinds"], "colours": colours(results["arms"])}),
    )


def packed(data: Any) -> str:
    """Data as it stands in the page (read by `unpacked` of page/dom.js): base64 of compressed JSON, the same for the same data."""
    return base64.b64encode(gzip.compress(orjson.dumps(data), mtime=0)).decode()


# -- the answer --------------------------------------------------------------------------------------------------------


def _answer(results: Mapping[str, Any], tables: Tables) -> Answer:
    """From held-out games before and after training; without them from training; without it of an evaluation."""
    if results["verdict"]:
        chief, changed = results["verdict"][0], tables.arms_changed()
        rows = [row for row in results["held_out"]["paired"] if all(row[k] == chief[k] for k in ("arm", "partner"))]
        about = f"Arm {words(chief['arm'])}, held-out games with the partner {words(chief['partner'])}:"
        return Answer(
            [*chief["sentences"], *_partners_part(results, chief)],
            about=about if len(changed.rows) > 1 else "",
            cards=[_card(results, row) for row in rows if "first screen" in MEASURES[row["measure"]].shown],
            tables=[
                *([changed] if len(changed.rows) > 1 else []),
                tables.training(),
                tables.partners(),
                tables.references(),
            ],
        )
    if results["counts"]["train"]:
        return Answer(
            ["There are no held-out games before and after training, so that only its trends can be told."],
            tables=[tables.training(), tables.partners(), tables.references()],
            open=True,
        )
    compared = results["compared"]
    return Answer(
        list(_evaluated(results)),
        cards=[_card(results, {**row, "measure": name}) for name, row in compared[0]["measures"].items()]
        if len(compared) == 1
        else [],
        tables_first=[tables.checkpoints(), *([tables.compared()] if compared else [])],
        tables=[tables.partners(), tables.references()],
    )


def _partners_part(results: Mapping[str, Any], chief: Mapping[str, Any]) -> Iterator[str]:
    """What the partner did wrongly in the held-out games, if it did, and the reward without the dialogues in which it did."""
    own = [row for row in results["partner_faults"] if all(row[key] == chief[key] for key in ("arm", "partner"))]
    ends = [row for row in own if row["phase"] != TRAIN]
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
    trend = {1: "rose", 0: "", -1: "fell"}[direction(row)] if known(row["low"]) else ""
    before, after = (plain(row[side], share) for side in ("before", "after"))
    return Card(sentence(measure["title"]), before, after, by_how_much(row, share), trend)


def _evaluated(results: Mapping[str, Any]) -> Iterator[str]:
    """An evaluation in sentences."""
    cells = results["held_out"]["cells"]
    counts = results["counts"]
    yield f"Evaluation: {count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}; no training is in these logs."
    scored = [cell for cell in cells if all(known(cell["measures"][name]["value"]) for name in ("questions", "reward"))]
    if len(scored) < 2:
        return
    if pairs := results["compared"]:
        yield from map(sentence_of, pairs[:MOST_PAIRS])
        return
    for measure, what in (("reward", "reward"), ("questions", "questions a game")):
        top, bottom = (pick(scored, key=lambda cell: cell["measures"][measure]["value"]) for pick in (max, min))
        parts = [
            f"{words(cell['arm'])} {plain(part['value'])} ({interval(part['low'], part['high'])})"
            for cell in (top, bottom)
            for part in [cell["measures"][measure]]
        ]
        yield f"Most {what}: {parts[0]}; least: {parts[1]}."


def _findings(results: Mapping[str, Any]) -> Iterator[str]:
    """What happened to questions and reward over training in each arm, and how the first arm differs, in sentences."""
    trend = {(row["arm"], row["measure"]): row for row in results["trends"]}
    for arm in results["arms"]:
        parts = [
            f"{name} {_movement(trend[arm, measure])}"
            for measure, name in (("questions", "questions a game"), ("reward", "reward"))
            if (arm, measure) in trend
        ]
        if parts:
            yield f"{sentence(words(arm))}, {per_steps(results['per_steps'])}: {'; '.join(parts)}."
    for row in results["differences"]:
        if row["measure"] == "questions" and known(row["value"]):
            exact = (
                f", exact permutation of runs p {p_value(row['p_permutation'])}" if known(row["p_permutation"]) else ""
            )
            yield (
                f"Slope of questions in {words(row['arm'])} less that in {words(row['other'])}: "
                f"{plain(row['value'], signed=True)} ({interval(*_widest(row))}{exact})."
            )


def _movement(row: Mapping[str, Any]) -> str:
    low, high = _widest(row)
    if not known(low):
        return f"{plain(row['value'], signed=True)}, interval unknown"
    verb = "show no clear trend," if low <= 0 <= high else "rise by" if row["value"] > 0 else "fall by"
    if row["measure"] == "reward":
        verb = verb.replace("show", "shows").replace("rise", "rises").replace("fall", "falls")
    value = plain(row["value"], signed=True) if low <= 0 <= high else plain(abs(row["value"]))
    return f"{verb} {value} ({interval(low, high)}, Holm p {p_value(row['p_holm'])})"


def _widest(row: Mapping[str, Any]) -> tuple[float, float]:
    """The interval a statement rests on: the wider of those over games and over runs."""
    spans = [(row["low"], row["high"]), (row["runs_low"], row["runs_high"])]
    return max(spans, key=lambda span: span[1] - span[0] if known(span[0]) else -1.0)


# -- the rest ----------------------------------------------------------------------------------------------------------


def _lead(results: Mapping[str, Any]) -> str:
    counts = results["counts"]
    arms = count(len(results["arms"]), "arm")
    of = f"{count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}"
    return f"{of} in {count(len(results['runs']), 'run')} and {arms}."


def _caption(name: str, results: Mapping[str, Any]) -> str:
    told = [
        f"{words(row['arm'])} {plain(row['value'])} ({interval(row['low'], row['high'])})"
        for row in results["correlations"]
        if row["given"] == "words" and row["method"] == "pearson" and known(row["value"])
    ]
    if name == "reward_by_questions" and told:
        return f"{PLOTS[name].caption} Partial correlation given the words spoken: {'; '.join(told)}."
    return PLOTS[name].caption


def _sample(results: Mapping[str, Any], viewer: Mapping[str, Any]) -> str:
    shown, total = len(viewer["dialogues"]), results["counts"]["dialogues"]
    if shown == total:
        return f"All {total:,} dialogues."
    logs = os.path.commonpath([file["path"] for file in results["files"]])
    return (
        f"{shown:,} of {total:,} dialogues, spread over arms, runs, steps and stop reasons; figures and tables count all of them. "
        f"The others are in the log, and shown in a terminal by slim-rl show {shlex.quote(logs)}."
    )


def _method(results: Mapping[str, Any]) -> str:
    return (
        "A dialogue is not an independent draw: a game is played several times. Intervals are therefore over games (clustered "
        "errors for means, Wilson's form for shares, a bootstrap of whole games for slopes and correlations) and, where an arm has "
        "several runs, over runs. One bootstrap draw takes the same games in all runs and arms. Failed dialogues have no reward and "
        f"count among the stop reasons only. {results['draws']:,} bootstrap draws, seed {results['seed']}."
    )
