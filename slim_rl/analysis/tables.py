"""The report's tables as HTML, and how numbers are written in it.

The invariant: every name that comes from a log is escaped here, and a number without an interval has none made up for
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from slim_rl.analysis.plots import colours

DASH = "–"


def plain(value: float | None, share: bool = False, signed: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    digits = 1 if share or abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    number = round(100 * value if share else value, digits) + 0.0  # no minus before a zero
    text = f"{number:{'+' if signed else ''},.{digits}f}"
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
    """Every table but the headline, as sections that open and close."""
    look = _Look(results)
    sections = (
        ("Held-out games", _held_out(results, look)),
        ("Trends", _by_role(look, results["trends"], _trends)),
        ("Trends compared", _by_role(look, results["differences"], _differences)),
        ("Questions and reward", _correlations(results["correlations"], look)),
        ("Runs", _runs(results["runs"], look)),
    )
    return "".join(
        f"<details{' open' if i < 2 else ''}><summary>{name}</summary>{html}</details>"
        for i, (name, html) in enumerate(sections)
        if html
    )


class _Look:
    """How this report's arms and measures are written."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._palette = colours(results["arms"])
        self._measures = results["measures"]

    def arm(self, row: Mapping[str, Any], key: str = "arm") -> str:
        return arm_name(row[key], self._palette)

    def title(self, row: Mapping[str, Any]) -> str:
        return escape(self._measures[row["measure"]]["title"])

    def share(self, row: Mapping[str, Any]) -> bool:
        return bool(self._measures[row["measure"]]["share"])

    def chief(self, row: Mapping[str, Any]) -> bool:
        """Whether the measure is shown at once, and not only when asked for."""
        return self._measures[row["measure"]]["role"] == "primary" or row["measure"] == "agreed"


Rows = Sequence[Mapping[str, Any]]


def _by_role(look: _Look, rows: Rows, make: Callable[[Rows, _Look], str]) -> str:
    """The table of the chief measures, and that of the others folded away."""
    chief, others = (make([row for row in rows if look.chief(row) is is_chief], look) for is_chief in (True, False))
    return chief + (f"<details><summary>Other measures</summary>{others}</details>" if others else "")


_FAMILY = (
    "Holm and Benjamini-Hochberg (BH) corrections are over the primary measures of all arms; others are uncorrected."
)


def _trends(rows: Rows, look: _Look) -> str:
    return table(
        f"Slopes per 100 training steps. p is the larger of those over games and over runs. {_FAMILY}",
        [
            "arm",
            "measure",
            "slope, 95% over games",
            "95% over runs",
            "runs",
            "games",
            "dialogues",
            "p",
            "Holm",
            "BH",
            "",
        ],
        (
            [
                look.arm(row),
                look.title(row),
                with_interval(row, look.share(row)),
                interval(row["runs_low"], row["runs_high"], look.share(row)),
                str(row["runs"]),
                f"{row['clusters']:,}",
                f"{row['n']:,}",
                *_tests(row),
                escape(row["note"]),
            ]
            for row in rows
        ),
        text=(1, 10),
    )


def _differences(rows: Rows, look: _Look) -> str:
    return table(
        "The first arm's slope per 100 steps less another's: over games by bootstrap, the same games drawn in both arms; over "
        f"runs by Welch's t and by the exact permutation of run labels. p is the larger of the first two. {_FAMILY}",
        [
            "arm",
            "less",
            "measure",
            "difference, 95% over games",
            "95% over runs",
            "p",
            "Holm",
            "BH",
            "permutation p",
            "",
        ],
        (
            [
                look.arm(row),
                look.arm(row, "other"),
                look.title(row),
                with_interval(row, look.share(row)),
                interval(row["runs_low"], row["runs_high"], look.share(row)),
                *_tests(row),
                p_value(row["p_permutation"]),
                escape(row["note"]),
            ]
            for row in rows
        ),
        text=(1, 2, 9),
    )


def _tests(row: Mapping[str, Any]) -> list[str]:
    return [p_value(row["p"]), p_value(row.get("p_holm")), p_value(row.get("q_bh"))]


def _correlations(rows: Rows, look: _Look) -> str:
    return table(
        "Correlation of information-seeking questions with reward in training dialogues, 95% by bootstrap over games. "
        "“Within a game and step” compares only the dialogues of one group, which is all that GRPO sees.",
        ["arm", "given", "method", "r", "dialogues", "games", "p", ""],
        (
            [
                look.arm(row),
                escape(row["given"]),
                row["method"],
                with_interval(row),
                f"{row['n']:,}",
                f"{row['clusters']:,}",
                p_value(row["p"]),
                escape(row["note"]),
            ]
            for row in rows
        ),
        text=(1, 2, 7),
    )


def _held_out(results: Mapping[str, Any], look: _Look) -> str:
    cells = results["held_out"]["cells"]
    shown = [row for row in ({"measure": name} for name in results["measures"]) if look.chief(row)]
    means = table(
        "Held-out games by checkpoint; 95% intervals clustered by game.",
        ["arm", "partner", "checkpoint", "runs", "dialogues", *(look.title(row) for row in shown)],
        (
            [
                look.arm(cell),
                escape(cell["partner"]),
                _checkpoint(cell),
                str(cell["runs"]),
                f"{max(part['n'] for part in cell['measures'].values()):,}",
                *(with_interval(cell["measures"][row["measure"]], look.share(row)) for row in shown),
            ]
            for cell in cells
        ),
        text=(1, 2),
    )
    return means + _by_role(look, results["held_out"]["paired"], _paired)


def _paired(rows: Rows, look: _Look) -> str:
    return table(
        "The last checkpoint against the first on the same games: mean difference with its 95% t interval over games, Cohen's "
        f"d<sub>z</sub>, p of the sign-flip permutation test. {_FAMILY}",
        [
            "arm",
            "partner",
            "from",
            "to",
            "measure",
            "before",
            "after",
            "difference",
            "games",
            "d<sub>z</sub>",
            "p",
            "Holm",
            "BH",
        ],
        (
            [
                look.arm(row),
                escape(row["partner"]),
                _checkpoint(row["from"]),
                _checkpoint(row["to"]),
                look.title(row),
                plain(row["before"], look.share(row)),
                plain(row["after"], look.share(row)),
                with_interval(row, look.share(row)),
                f"{row['clusters']:,}",
                plain(row["effect"]),
                *_tests(row),
            ]
            for row in rows
        ),
        text=(1, 2, 3, 4),
    )


def _checkpoint(cell: Mapping[str, Any]) -> str:
    step = cell["step"]
    return escape(str(cell["phase"])) + (f", step {step:.0f}" if known(step) else "")


def _runs(rows: Rows, look: _Look) -> str:
    return table(
        "What was read.",
        ["arm", "run", "dialogues", "games", "failed", "steps", "phases", "policy", "partner"],
        (
            [
                look.arm(run),
                escape(run["run"]),
                f"{run['dialogues']:,}",
                f"{run['games']:,}",
                f"{run['failed']:,}",
                f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH,
                escape(", ".join(f"{phase} {count:,}" for phase, count in run["phases"].items())),
                escape(", ".join(run["policies"])),
                escape(", ".join(run["partners"])),
            ]
            for run in rows
        ),
        text=(1, 6, 7, 8),
    )
