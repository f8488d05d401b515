"""The report's tables as data: columns that say how a row is shown, and the rows. The page's template makes them HTML.

The invariant: a cell is plain text, which the template escapes, or a `Cell`; no name from a log becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.load import TRAIN
from slim_rl.dialogue.measures import MEASURES, shown_in
from slim_rl.formats import DASH, interval, known, p_value, per_steps, plain, words

Row = Mapping[str, Any]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than text: `aside` in grey behind it, a dot of `colour` before it."""

    text: str
    aside: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and what it shows of a row; `prose` is aligned as words are."""

    head: str
    show: Callable[[Row], str | Cell]
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """`others`: the same for rows that are shown only when asked for."""

    caption: str
    columns: Sequence[Column]
    rows: Rows
    others: Rows = ()


def prose(key: str, head: str | None = None) -> Column:
    return Column(key if head is None else head, lambda row: row[key], prose=True)


def number(key: str, head: str | None = None) -> Column:
    return Column(key if head is None else head, lambda row: f"{row[key]:,}")


def p_of(key: str, head: str) -> Column:
    return Column(head, lambda row: p_value(row.get(key)))


def with_interval(part: Row, share: bool = False, signed: bool = False) -> Cell:
    """The row's value, and its interval in grey."""
    span = interval(part["low"], part["high"], share, signed)
    return Cell(plain(part["value"], share, signed), "" if span == DASH else span)


class Tables:
    """Makes the tables of one results dict."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.results = results
        self._palette = colours(results["arms"])
        self._measures = results["measures"]
        self._per = per_steps(results["per_steps"])

    def sections(self) -> dict[str, list[Table]]:
        """Every table but those of the first screen, by heading; empty ones are left out."""
        results = self.results
        sections = {
            "Held-out games": [self.checkpoints(), self._paired()],
            "Trends": [self._trends()],
            "Trends compared": [self._differences()],
            "Questions and reward": [self._correlations()],
            "Runs": [self._runs()],
        }
        if not results["counts"]["train"]:
            sections["Held-out games"].pop(0)  # the first screen has it
        filled = {name: [table for table in tables if table.rows] for name, tables in sections.items()}
        return {name: tables for name, tables in filled.items() if tables}

    # -- the first screen

    def arms_changed(self) -> Table:
        """Before and after training, one row an arm and partner."""
        paired: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.results["held_out"]["paired"]:
            if row["measure"] in ("questions", "reward"):
                paired.setdefault((row["arm"], row["partner"]), {"arm": row["arm"]})[row["measure"]] = row
        rows = [row for row in paired.values() if {"questions", "reward"} <= row.keys()]

        def changed(name: str) -> list[Column]:
            return [
                Column(f"{name} before", lambda row: plain(row[name]["before"])),
                Column("after", lambda row: plain(row[name]["after"])),
                Column(f"change of {name}", lambda row: with_interval(row[name], signed=True)),
            ]

        caption = "The same held-out games before and after training; 95% intervals over games."
        return Table(caption, [self._arm(), *changed("questions"), *changed("reward")], rows)

    def training(self) -> Table:
        """The first and last tenth of training, one row an arm."""
        results = self.results
        slopes = {(row["arm"], row["measure"]): row for row in results["trends"]}
        rows = []
        for arm in results["arms"]:
            runs = [run for run in results["runs"] if run["arm"] == arm]
            row = {"arm": arm, "runs": len(runs), "dialogues": sum(run["phases"].get(TRAIN, 0) for run in runs)}
            rows.append({**row, "ends": results["ends"].get(arm, {})})

        def told(name: str) -> list[Column]:
            def end(row: Row, side: str) -> str | Cell:
                return with_interval(row["ends"][name][side]) if name in row["ends"] else DASH

            def slope(row: Row) -> str | Cell:
                found = slopes.get((row["arm"], name))
                return with_interval(found, signed=True) if found else DASH

            return [
                Column(f"{name}, first", lambda row: end(row, "first")),
                Column(f"{name}, last", lambda row: end(row, "last")),
                Column(f"slope of {name}", slope),
            ]

        return Table(
            f"Training: the first and the last tenth of the steps, and the slope {self._per}; 95% intervals over games.",
            [self._arm(), number("runs"), number("dialogues"), *told("questions"), *told("reward")],
            rows if any(row["ends"] for row in rows) else [],
        )

    def partners(self) -> Table:
        """What partners did wrongly, beside the reward, one row a phase and checkpoint."""
        rows = self.results["partner_faults"]

        def fault(name: str) -> Column:
            def show(row: Row) -> str | Cell:
                part = row["faults"][name]
                if not part["cases"]:
                    return DASH
                return Cell(
                    plain(part["faults"] / part["cases"], share=True), f"{part['faults']:,} of {part['cases']:,}"
                )

            return Column(name, show)

        names = [name for name in (rows[0]["faults"] if rows else ()) if any(r["faults"][name]["cases"] for r in rows)]
        columns = [
            self._arm(),
            prose("partner"),
            Column("played", _checkpoint, prose=True),
            Column("reward", lambda row: with_interval(row["reward"])),
            Column("where it made none", lambda row: with_interval(row["clean_reward"])),
            number("clean", "dialogues of those"),
            *map(fault, names),
        ]
        return Table(
            "The partner's own faults, whether or not it is made to commit them, as shares of the times it could have; and the reward "
            "without the dialogues that hold one.",
            columns,
            rows if names else [],
        )

    def references(self) -> Table:
        rows = [{"name": name, **line, **line["reward"]} for name, line in self.results["references"].items()]
        columns = [
            Column("plan", lambda row: words(row["name"]), prose=True),
            Column("reward", with_interval),
            number("n"),
            prose("about", ""),
        ]
        return Table("For comparison: reward of plans made without any dialogue, and of people.", columns, rows)

    def checkpoints(self) -> Table:
        """Means on held-out games, one row a policy and partner."""
        columns = [
            self._arm(),
            prose("partner"),
            Column("checkpoint", _checkpoint, prose=True),
            number("runs"),
            Column("dialogues", lambda row: f"{max(part['n'] for part in row['measures'].values()):,}"),
            *(self._measured(name) for name in self._measures if self._is_chief(name)),
        ]
        caption = "Held-out games by checkpoint; 95% intervals clustered by game."
        return Table(caption, columns, self.results["held_out"]["cells"])

    def compared(self) -> Table:
        """Evaluated cells against each other, one row a pair."""

        def p(name: str) -> Column:
            return Column("p", lambda row: p_value(row["measures"][name]["p"]))

        columns = [self._arm("second", "cell"), self._arm("first", "baseline"), number("games")]
        for measure in shown_in("first screen"):
            if measure.name in self._measures and measure.role == "primary":
                columns += [self._measured(measure.name, signed=True), p(measure.name)]
        caption = (
            "Compared on the games that both played: the cell less the baseline, with the 95% t interval over games, and p of the sign-flip "
            "permutation test, not corrected for the number of pairs. Two cells are compared if they differ in their policy, partner or mode alone."
        )
        return Table(caption, columns, self.results["compared"])

    # -- the others

    def _trends(self) -> Table:
        return self._by_role(
            f"Slopes: change {self._per} of training. p is the larger of those over games and over runs. {_FAMILY}",
            [
                self._arm(),
                self._title(),
                Column("slope, 95% over games", self._value),
                Column("95% over runs", self._over_runs),
                number("runs"),
                *_COUNTS,
                *_TESTS,
                _NOTE,
            ],
            self.results["trends"],
        )

    def _differences(self) -> Table:
        return self._by_role(
            f"The first arm's slope, as change {self._per}, less another's: over games by bootstrap, the same games drawn in both arms; "
            "over runs by Welch's t and by the exact permutation of run labels. p is the larger of the first two. "
            + _FAMILY,
            [
                self._arm(),
                self._arm("other", "less"),
                self._title(),
                Column("difference, 95% over games", self._value),
                Column("95% over runs", self._over_runs),
                *_TESTS,
                p_of("p_permutation", "permutation p"),
                _NOTE,
            ],
            self.results["differences"],
        )

    def _correlations(self) -> Table:
        return Table(
            "Correlation of information-seeking questions with reward in training dialogues, 95% by bootstrap over games. "
            "“Within a game and step” compares only the dialogues of one group, which is all that GRPO sees.",
            [
                self._arm(),
                prose("given"),
                prose("method"),
                Column("r", with_interval),
                *_COUNTS,
                _P,
                _NOTE,
            ],
            self.results["correlations"],
        )

    def _paired(self) -> Table:
        return self._by_role(
            "The last checkpoint against the first on the same games: mean change with its 95% t interval over games, Cohen's "
            f"d (mean change over its deviation), p of the sign-flip permutation test. {_FAMILY}",
            [
                self._arm(),
                prose("partner"),
                Column("from", lambda row: _checkpoint(row["from"]), prose=True),
                Column("to", lambda row: _checkpoint(row["to"]), prose=True),
                self._title(),
                Column("before", lambda row: plain(row["before"], self._share(row))),
                Column("after", lambda row: plain(row["after"], self._share(row))),
                Column("change", self._value),
                _GAMES,
                Column("d", lambda row: plain(row["effect"])),
                *_TESTS,
            ],
            self.results["held_out"]["paired"],
        )

    def _runs(self) -> Table:
        return Table(
            "What was read.",
            [
                self._arm(),
                prose("run"),
                *map(number, ("dialogues", "games", "failed")),
                Column("steps", _steps),
                Column("phases", lambda row: ", ".join(f"{k} {v:,}" for k, v in row["phases"].items()), prose=True),
                Column("policy", lambda row: ", ".join(row["policies"]), prose=True),
                Column("partner", lambda row: ", ".join(row["partners"]), prose=True),
            ],
            self.results["runs"],
        )

    def files(self) -> Table:
        counts = [number("lines"), number("dialogues"), number("torn")]
        others = [number("unreadable", "not JSON"), number("foreign", "other")]
        return Table("Log files.", [prose("path", "file"), *counts, *others], self.results["files"])

    # -- how this report's arms and measures are written

    def _by_role(self, caption: str, columns: Sequence[Column], rows: Rows) -> Table:
        chief = [row for row in rows if self._is_chief(row["measure"])]
        others = [row for row in rows if not self._is_chief(row["measure"])]
        return Table(caption, columns, chief, others)

    def _is_chief(self, measure: str) -> bool:
        """Whether the measure is shown at once, and not only when asked for."""
        return self._measures[measure]["role"] == "primary" or "first screen" in MEASURES[measure].shown

    def _arm(self, key: str = "arm", head: str = "arm") -> Column:
        return Column(head, lambda row: Cell(words(row[key]), colour=self._palette[row[key]]), prose=True)

    def _title(self) -> Column:
        return Column("measure", lambda row: self._measures[row["measure"]]["title"], prose=True)

    def _measured(self, name: str, signed: bool = False) -> Column:
        """A column of a row that has several measures."""
        measure = self._measures[name]
        return Column(measure["title"], lambda row: with_interval(row["measures"][name], measure["share"], signed))

    def _share(self, row: Row) -> bool:
        return bool(self._measures[row["measure"]]["share"])

    def _value(self, row: Row) -> Cell:
        return with_interval(row, self._share(row), signed=True)

    def _over_runs(self, row: Row) -> str:
        return interval(row["runs_low"], row["runs_high"], self._share(row), signed=True)


_FAMILY = (
    "Holm and Benjamini-Hochberg (BH) corrections are over the primary measures of all arms; others are uncorrected."
)
_GAMES = number("clusters", "games")
_COUNTS = (_GAMES, number("n", "dialogues"))
_P = p_of("p", "p")
_TESTS = (_P, p_of("p_holm", "Holm"), p_of("q_bh", "BH"))
_NOTE = prose("note", "")


def _checkpoint(cell: Row) -> str:
    step = cell["step"]
    return str(cell["phase"]) + (f", step {step:.0f}" if known(step) else "")


def _steps(run: Row) -> str:
    return f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH
