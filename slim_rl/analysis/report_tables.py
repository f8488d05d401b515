"""The tables of a report on logs, but for what every page has (`tables`): from the numbers of `summary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.figure_style import colours
from slim_rl.analysis.sections import Section
from slim_rl.analysis.tables import (
    Column,
    Row,
    Table,
    TableCell,
    arm,
    held_out,
    moved,
    number,
    p_of,
    prose,
    with_interval,
)
from slim_rl.dialogue.measures import MEASURES, shown_in
from slim_rl.formats import DASH, known, p_value, plain, words


class Tables:
    """Makes the tables of one results dict."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.results = results
        self._palette = colours(results["arms"])
        self._measures = results["measures"]

    def sections(self, added: Sequence[Section] = ()) -> dict[str, list[Table]]:
        """Returns every table except those of the first screen, by heading; empty ones are left out. `added`: of other packages."""
        sections = {
            "Held-out games": [*([self.held_out()] if self.results["counts"]["train"] else []), self.measures()],
            "Questions and reward in one game": [self.correlations()],
            **{section.heading: section.tables for section in added},
            "Held-out games by checkpoint": [self.checkpoints()],
            "Runs": [self._runs()],
        }
        filled = {name: [table for table in tables if table.rows or table.others] for name, tables in sections.items()}
        return {name: tables for name, tables in filled.items() if tables}

    # -- the first screen

    def held_out(self) -> Table:
        """The chief measures before and after training, or of an evaluation; one row an arm and partner."""
        caption = "Held-out games: before → after training, and the change on the games played both times, with its 95% interval."
        if not self.results["counts"]["train"]:
            caption = "Held-out games, with 95% intervals."
        chief = [name for name in self._measures if self._is_chief(name)]
        return held_out(self.results["held_out"], chief, caption, self._palette, "partner")

    def training(self) -> Table:
        """The first and last tenth of training, one row an arm."""
        results = self.results
        rows = []
        for name in results["arms"]:
            runs = [run for run in results["runs"] if run["arm"] == name]
            row = {"arm": name, "runs": len(runs), "dialogues": sum(run["phases"].get(TRAIN, 0) for run in runs)}
            rows.append({**row, "ends": results["ends"].get(name, {})})

        def end(name: str, side: str) -> Column:
            def show(row: Row) -> str | TableCell:
                return with_interval(row["ends"][name][side]) if name in row["ends"] else DASH

            return Column(f"{name}, {side}", show)

        ends = [end(name, side) for name in ("questions", "reward") for side in ("first", "last")]
        return Table(
            "Training: the first and the last tenth of the steps; 95% intervals over games.",
            [self._arm(), number("runs"), number("dialogues"), *ends],
            rows if any(row["ends"] for row in rows) else [],
        )

    def partners(self) -> Table:
        """What partners did wrongly, beside the reward, one row a phase and checkpoint."""
        rows = self.results["partner_faults"]

        def fault(name: str) -> Column:
            def show(row: Row) -> str | TableCell:
                part = row["faults"][name]
                if not part["cases"]:
                    return DASH
                return TableCell(
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
            "without the dialogues that hold one, with 95% intervals over games.",
            columns,
            rows if names else [],
        )

    def references(self) -> Table:
        rows = [{"name": name, **line, **line["reward"]} for name, line in self.results["references"].items()]
        columns = [
            Column("plan", lambda row: words(row["name"]), prose=True),
            Column("reward", with_interval),
            number("n"),
            prose("about", "what it is"),
        ]
        human = ", and of people" if "human" in self.results["references"] else ""
        return Table(
            f"For comparison: reward of plans made without any dialogue{human}, with 95% intervals over games.",
            columns,
            rows,
        )

    def measures(self) -> Table:
        """The other measures on held-out games, one row an arm, partner and measure."""
        columns = [
            self._arm(),
            prose("condition", "partner"),
            Column("measure", lambda row: self._measures[row["measure"]]["title"], prose=True),
            Column("better", lambda row: _BETTER[self._measures[row["measure"]]["better"]], prose=True),
            Column("before → after", moved),
            prose("over", "interval over"),
            p_of("p", "p of no change"),
        ]
        others = [row for row in self.results["held_out"] if not self._is_chief(row["measure"])]
        caption = (
            "In the same way; the change of a measure that some games lack is over those that have it both times, so it need not be the "
            "difference of the two means. p is not corrected for the number of measures."
        )
        return Table(caption, columns, (), others)

    def correlations(self) -> Table:
        """How questions and reward go together among dialogues of one game, one row per arm."""
        columns = [
            self._arm(),
            prose("when", "played"),
            Column("correlation", with_interval),
            number("n", "dialogues"),
            number("clusters", "games"),
        ]
        caption = (
            "Correlation of questions and reward among dialogues of one game, run and checkpoint, with 95% jackknife intervals over games. "
            "It is no cause: a dialogue may ask more because its plan was rejected, and one that agrees early has no time to ask. "
            "Forced questions (slim-rl evaluate --mode forced:3) show what asking itself brings."
        )
        return Table(caption, columns, self.results["correlations"])

    def checkpoints(self, least: int = 3) -> Table:
        """Means at every checkpoint, where there are so many; fewer are in the other tables as a first and a last one."""
        rows = self.results["checkpoints"]
        times = Counter((row["arm"], row["partner"]) for row in rows)
        columns = [
            self._arm(),
            prose("partner"),
            Column("checkpoint", _checkpoint, prose=True),
            number("runs"),
            *(self._measured(measure.name) for measure in shown_in("first screen") if measure.name in self._measures),
        ]
        more = [row for row in rows if times[row["arm"], row["partner"]] >= least]
        return Table("Held-out games by checkpoint; 95% intervals over games.", columns, more)

    def compared(self) -> Table:
        """Evaluated cells against each other, one row a pair."""

        def p(name: str) -> Column:
            return Column("p", lambda row: p_value(row["measures"][name]["p"]))

        columns = [self._arm("second", "cell"), self._arm("first", "baseline"), number("games")]
        for measure in shown_in("first screen"):
            if measure.name in self._measures and measure.role == "primary":
                columns += [self._measured(measure.name, signed=True), p(measure.name)]
        caption = (
            "Compared on the games that both played: the cell minus the baseline, with the 95% t interval over games, and p of the sign-flip "
            "permutation test, not corrected for the number of pairs. Two cells are compared if they differ in their policy, partner or mode alone."
        )
        return Table(caption, columns, self.results["compared"])

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

    def _arm(self, key: str = "arm", head: str = "arm") -> Column:
        return arm(self._palette, key, head)

    def _is_chief(self, measure: str) -> bool:
        """Whether the measure is shown at once, and not only when asked for."""
        return self._measures[measure]["role"] == "primary" or "first screen" in MEASURES[measure].shown

    def _measured(self, name: str, signed: bool = False) -> Column:
        """A column of a row that has several measures."""
        measure = self._measures[name]
        return Column(measure["title"], lambda row: with_interval(row["measures"][name], measure["share"], signed))


_BETTER = {"up": "more", "down": "less", "": DASH}


def _checkpoint(cell: Row) -> str:
    step = cell["step"]
    return str(cell["phase"]) + (f", step {step:.0f}" if known(step) else "")


def _steps(run: Row) -> str:
    return f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH
