"""The report's tables as HTML, and how numbers are written in it.

The invariant: every name that comes from a log is escaped here, and a number without an interval has none made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from slim_rl.analysis.plots import colours

DASH = "–"


def plain(value: float | None, share: bool = False, signed: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    digits = 1 if share or abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    text = f"{100 * value if share else value:{'+' if signed else ''},.{digits}f}"
    return text.replace("-", "−") + ("%" if share else "")


def interval(low: float | None, high: float | None, share: bool = False) -> str:
    return f"{plain(low, share)} to {plain(high, share)}" if known(low) and known(high) else DASH


def known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def p_value(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def with_interval(part: Mapping[str, Any], share: bool = False, value: str = "value") -> str:
    """HTML: the number, and its interval in grey."""
    span = interval(part["low"], part["high"], share)
    text = plain(part[value], share)
    return text if span == DASH else f'{text} <span class="ci">{span}</span>'


def words(name: Any) -> str:
    return escape(str(name).replace("_", " "))


def arm_name(arm: str, palette: Mapping[str, str]) -> str:
    return f'<span class="dot" style="background:{palette.get(arm, "#888")}"></span>{words(arm)}'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = ()) -> str:
    """An HTML table; cells are HTML already, `text` names the columns that are words. Empty without rows."""
    body = []
    kind = dict.fromkeys(text, ' class="text"')
    for row in rows:
        body.append("<tr>" + "".join(f"<td{kind.get(i, '')}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>")
    if not body:
        return ""
    top = "".join(f'<th scope="col"{kind.get(i, "")}>{name}</th>' for i, name in enumerate(head))
    return (
        f'<div class="scroll"><table class="data"><caption>{caption}</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def headline(results: Mapping[str, Any]) -> str:
    palette = colours(results["arms"])
    by_arm = {arm: [run for run in results["runs"] if run["arm"] == arm] for arm in results["arms"]}
    slope = {(row["arm"], row["measure"]): row for row in results["trends"]}
    rows = []
    for arm, runs in by_arm.items():
        ends = results["ends"].get(arm, {})
        cells = [arm_name(arm, palette), str(len(runs)), f"{sum(run['dialogues'] for run in runs):,}"]
        for name in ("seeking", "reward"):
            first, last = (ends.get(name, {}).get(side) for side in ("first", "last"))
            cells += [with_interval(first) if first else DASH, with_interval(last) if last else DASH]
            cells.append(with_interval(slope[arm, name]) if (arm, name) in slope else DASH)
        rows.append(cells)
    return table(
        "Training: the first and the last tenth of the steps, and the slope per 100 steps; 95% intervals over games.",
        [
            "arm",
            "runs",
            "dialogues",
            "questions, first",
            "questions, last",
            "slope",
            "reward, first",
            "reward, last",
            "slope",
        ],
        rows,
    ) + _references(results)


def _references(results: Mapping[str, Any]) -> str:
    rows = [
        [words(name), with_interval(part["reward"]), f"{part['reward']['n']:,}", escape(part["about"])]
        for name, part in results["references"].items()
    ]
    return table(
        "For comparison: reward of plans made without any dialogue, and of people.",
        ["plan", "reward", "n", ""],
        rows,
        (3,),
    )


def all_tables(results: Mapping[str, Any]) -> str:
    palette, titles, shares = colours(results["arms"]), {}, {}
    for name, measure in results["measures"].items():
        titles[name], shares[name] = escape(measure["title"]), measure["share"]
    family = "Holm and Benjamini-Hochberg corrections are over the primary measures of this table; the others are uncorrected."
    trends = table(
        f"Slopes per 100 training steps. p is over runs where an arm has two or more, else over games. {family}",
        ["arm", "measure", "slope, 95% over games", "95% over runs", "runs", "games", "dialogues", "p", "Holm", "BH", ""],
        (
            [
                arm_name(r["arm"], palette), titles[r["measure"]], with_interval(r, shares[r["measure"]]),
                interval(r["runs_low"], r["runs_high"], shares[r["measure"]]), str(r["runs"]), f"{r['clusters']:,}", f"{r['n']:,}",
                p_value(r["p"]), p_value(r.get("p_holm")), p_value(r.get("q_bh")), escape(r["note"]),
            ]
            for r in results["trends"]
        ),
        (1, 10),
    )  # fmt: skip
    differences = table(
        f"How much steeper the first arm's slope is, per 100 steps. {family}",
        ["arm", "than", "measure", "difference, 95% over games", "95% over runs (Welch)", "p", "permutation p", "Holm", "BH", ""],
        (
            [
                arm_name(r["arm"], palette), arm_name(r["other"], palette), titles[r["measure"]], with_interval(r, shares[r["measure"]]),
                interval(r["runs_low"], r["runs_high"], shares[r["measure"]]), p_value(r["p"]), p_value(r["p_permutation"]),
                p_value(r.get("p_holm")), p_value(r.get("q_bh")), escape(r["note"]),
            ]
            for r in results["differences"]
        ),
        (1, 2, 9),
    )  # fmt: skip
    correlations = table(
        "Correlation of information-seeking questions with reward in training dialogues: 95% bootstrap over games. "
        "“Within a game and step” compares only dialogues of one group, which is all that GRPO sees.",
        ["arm", "given", "method", "r", "dialogues", "games", "p", ""],
        (
            [
                arm_name(r["arm"], palette), escape(r["given"]), r["method"], with_interval(r), f"{r['n']:,}", f"{r['clusters']:,}",
                p_value(r["p"]), escape(r["note"]),
            ]
            for r in results["correlations"]
        ),
        (1, 2, 7),
    )  # fmt: skip
    sections = (
        ("Held-out games", _held_out(results, palette, titles, shares)),
        ("Trends", trends),
        ("Trends compared", differences),
        ("Questions and reward", correlations),
        ("Runs", _runs(results, palette)),
    )
    return "".join(
        f"<details{' open' if i < 2 else ''}><summary>{name}</summary>{html}</details>"
        for i, (name, html) in enumerate(sections)
        if html
    )


def _held_out(
    results: Mapping[str, Any], palette: Mapping[str, str], titles: Mapping[str, str], shares: Mapping[str, bool]
) -> str:
    shown = [name for name in results["measures"] if results["measures"][name]["role"] == "primary" or name == "agreed"]
    cells = table(
        "Held-out games by checkpoint; 95% intervals clustered by game.",
        ["arm", "partner", "checkpoint", "runs", "dialogues", *(titles[name] for name in shown)],
        (
            [
                arm_name(cell["arm"], palette), escape(cell["partner"]), _checkpoint(cell), str(cell["runs"]),
                f"{max(part['n'] for part in cell['measures'].values()):,}",
                *(with_interval(cell["measures"][name], shares[name]) for name in shown),
            ]
            for cell in results["held_out"]["cells"]
        ),
        (1, 2),
    )  # fmt: skip
    paired = table(
        "The last checkpoint against the first on the same games: mean difference with its 95% t interval over games, p of the "
        "sign-flip permutation test, Cohen's d<sub>z</sub>. Holm and Benjamini-Hochberg over the primary measures.",
        ["arm", "partner", "measure", "from", "to", "before", "after", "difference", "games", "d<sub>z</sub>", "p", "Holm", "BH"],
        (
            [
                arm_name(r["arm"], palette), escape(r["partner"]), titles[r["measure"]], _checkpoint(r["from"]), _checkpoint(r["to"]),
                plain(r["before"], shares[r["measure"]]), plain(r["after"], shares[r["measure"]]),
                with_interval(r, shares[r["measure"]]), f"{r['clusters']:,}", plain(r["effect"]), p_value(r["p"]), p_value(r.get("p_holm")),
                p_value(r.get("q_bh")),
            ]
            for r in results["held_out"]["paired"]
        ),
        (1, 2, 3, 4),
    )  # fmt: skip
    return cells + paired


def _checkpoint(cell: Mapping[str, Any]) -> str:
    step = cell["step"]
    return escape(str(cell["phase"])) + (f", step {step:.0f}" if known(step) else "")


def _runs(results: Mapping[str, Any], palette: Mapping[str, str]) -> str:
    return table(
        "What was read.",
        ["arm", "run", "dialogues", "games", "failed", "steps", "phases", "policy", "partner"],
        (
            [
                arm_name(run["arm"], palette), escape(run["run"]), f"{run['dialogues']:,}", f"{run['games']:,}", f"{run['failed']:,}",
                f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH,
                escape(", ".join(f"{phase} {count:,}" for phase, count in run["phases"].items())),
                escape(", ".join(run["policies"])), escape(", ".join(run["partners"])),
            ]
            for run in results["runs"]
        ),
        (1, 6, 7, 8),
    )  # fmt: skip
