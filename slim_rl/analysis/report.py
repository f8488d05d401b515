"""report.html: one file that opens from disk, with everything in it and nothing fetched.

The invariant: whatever stands in a log (names, dialogue text, failure messages) is text. Tables escape it; the viewer's
data is JSON in which `<` is written \\u003c, so that no `</script>` can end it; the page's content policy runs the one
script it was made with and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

import orjson

from slim_rl.analysis.catalog import KINDS
from slim_rl.analysis.plots import colours
from slim_rl.analysis.tables import all_tables, headline, interval, known, p_value, plain, table, words

TITLE = "What did the policy learn to ask?"
CAPTIONS = {
    "training": "Information-seeking questions a game (messages that ask about a pair or in general) and reward over training. "
    "Bands: 95% intervals, clustered by game. Thin lines: single runs.",
    "trends": "Least-squares slope over training. Dot: mean of the arm's runs; ticks above it: single runs. Thick bar: 95% "
    "bootstrap interval over games, given these runs. Thin bar: 95% t interval over runs, which is what to expect of another seed.",
    "question_kinds": "Kinds among the policy's questions. A message of two kinds counts for both.",
    "stop_reasons": "Why dialogues ended. Greys are failures that are nobody's play and have no reward.",
    "measures": "The other measures over training; bands and lines as above.",
    "frontier": "Mean reward by the informative pairs that the policy asked about (a pair is informative if the partner sees it and "
    "the policy does not), beside an ideal asker, who takes the most valuable question each time, and a random one.",
}
WIDE = ("training", "trends", "measures", "question_kinds", "stop_reasons")


def render(results: Mapping[str, Any], svgs: Mapping[str, str], viewer: Mapping[str, Any]) -> str:
    """The page, from the results dict, the figures as SVG and the viewer's data."""
    script = _asset("report.js")
    parts = {
        "title": escape(TITLE),
        "lead": _lead(results),
        "style": _asset("report.css"),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "summary": _summary(results),
        "figures": _figures(results, svgs),
        "tables": all_tables(results),
        "sample": escape(_sample(results, viewer)),
        "method": _method(results),
        "data": embed_json({**viewer, "kinds": KINDS, "colours": colours(results["arms"])}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("report.html"))


def embed_json(data: Any) -> str:
    """JSON that can stand inside a <script> element whatever its strings hold."""
    text = orjson.dumps(data).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return files("slim_rl.analysis").joinpath(name).read_text(encoding="utf-8")


# -- sections ----------------------------------------------------------------------------------------------------------


def _lead(results: Mapping[str, Any]) -> str:
    runs, counts = results["runs"], results["counts"]
    return escape(
        f"{counts['dialogues']:,} dialogues of {counts['games']:,} games in {len(runs)} "
        f"run{'s' if len(runs) != 1 else ''} and {len(results['arms'])} arm{'s' if len(results['arms']) != 1 else ''}."
    )


def _summary(results: Mapping[str, Any]) -> str:
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in results["warnings"])
    findings = "".join(f"<li>{text}</li>" for text in _findings(results))
    several = any(known(row["runs_low"]) for row in results["trends"])
    basis = (
        "the wider of those over games and over runs" if several else "over games; one run says nothing of other seeds"
    )
    note = f'<p class="note">Intervals: 95%, {basis}.</p>' if findings else ""
    return f'{warnings}<ul class="findings">{findings}</ul>{note}{headline(results)}'


def _findings(results: Mapping[str, Any]) -> Iterator[str]:
    """What happened to questions and reward in each arm, and how the first arm differs, in sentences (HTML)."""
    trend = {(row["arm"], row["measure"]): row for row in results["trends"]}
    for arm in results["arms"]:
        parts = [
            f"{name} {_movement(trend[arm, measure])}"
            for measure, name in (("seeking", "information-seeking questions a game"), ("reward", "reward"))
            if (arm, measure) in trend
        ]
        if parts:
            yield f"<b>{words(arm)}</b>, per 100 steps: {'; '.join(parts)}."
    for row in results["differences"]:
        if row["measure"] == "seeking" and known(row["value"]):
            exact = (
                f", exact permutation of runs p {p_value(row['p_permutation'])}" if known(row["p_permutation"]) else ""
            )
            yield (
                f"Slope of questions in <b>{words(row['arm'])}</b> less that in <b>{words(row['other'])}</b>: "
                f"<b>{plain(row['value'], signed=True)}</b> ({interval(*_widest(row))}{exact})."
            )


def _movement(row: Mapping[str, Any]) -> str:
    low, high = _widest(row)
    if not known(low):
        return f"<b>{plain(row['value'], signed=True)}</b>, interval unknown"
    verb = "show no clear trend," if low <= 0 <= high else "rise by" if row["value"] > 0 else "fall by"
    if row["measure"] == "reward":
        verb = verb.replace("show", "shows").replace("rise", "rises").replace("fall", "falls")
    value = plain(row["value"], signed=True) if low <= 0 <= high else plain(abs(row["value"]))
    return f"{verb} <b>{value}</b> ({interval(low, high)}, Holm p {p_value(row['p_holm'])})"


def _widest(row: Mapping[str, Any]) -> tuple[float, float]:
    """The interval a statement rests on: the wider of those over games and over runs."""
    spans = [(row["low"], row["high"]), (row["runs_low"], row["runs_high"])]
    return max(spans, key=lambda span: span[1] - span[0] if known(span[0]) else -1.0)


def _figures(results: Mapping[str, Any], svgs: Mapping[str, str]) -> str:
    items = []
    for name, svg in svgs.items():
        caption = _reward_caption(results) if name == "reward_by_questions" else escape(CAPTIONS[name])
        source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
        wide = ' class="wide"' if name in WIDE else ""
        alt = escape(name.replace("_", " "))
        items.append(f'<figure{wide}><img alt="{alt}" src="{source}"><figcaption>{caption}</figcaption></figure>')
    return f'<div class="figures">{"".join(items)}</div>'


def _reward_caption(results: Mapping[str, Any]) -> str:
    parts = []
    for row in results["correlations"]:
        if row["given"] == "words" and row["method"] == "pearson" and known(row["value"]):
            parts.append(f"{words(row['arm'])} {plain(row['value'])} ({interval(row['low'], row['high'])})")
    text = (
        "Mean reward of the dialogues with so many information-seeking questions, with 95% intervals clustered by game; a point's "
        "area is their number (groups of fewer than 10 dialogues or 2 games are not drawn)."
    )
    return text + (f" Partial correlation given the words spoken: {'; '.join(parts)}." if parts else "")


def _sample(results: Mapping[str, Any], viewer: Mapping[str, Any]) -> str:
    shown, total = len(viewer["dialogues"]), results["counts"]["dialogues"]
    if shown == total:
        return f"All {total:,} dialogues."
    return f"{shown:,} of {total:,} dialogues, spread over arms, runs, steps and stop reasons; figures and tables count all of them."


def _method(results: Mapping[str, Any]) -> str:
    files_table = table(
        "Log files.",
        ["file", "lines", "dialogues", "torn", "not JSON", "other"],
        (
            [
                f"<code>{escape(f['path'])}</code>",
                *(f"{f[key]:,}" for key in ("lines", "dialogues", "torn", "unreadable", "foreign")),
            ]
            for f in results["files"]
        ),
    )
    text = (
        "A dialogue is not an independent draw: a game is played several times. Intervals are therefore over games (clustered "
        "errors for means, a bootstrap of whole games for slopes and correlations) and, where an arm has several runs, over runs. "
        "One bootstrap draw takes the same games in all runs and arms. Failed dialogues have no reward and count among the stop "
        f"reasons only. {results['draws']:,} bootstrap draws, seed {results['seed']}."
    )
    made = f"Made by slim_rl {escape(results['version'])} with <code>{escape(results['command'])}</code>."
    return f"<p>{escape(text)}</p><p>{made} All numbers are in <code>summary.json</code>.</p>{files_table}"
