"""Tables of the log report, built from `summary`; tables shared by all pages are in `tables`."""

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
    """Tables of one results dict."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.results = results
        self._palette = colours(results["arms"])
        self._measures = results["measures"]

    def sections(self, added: Sequence[Section] = ()) -> dict[str, list[Table]]:
        """Returns the non-empty tables below the first screen, by heading.

        Args:
            added: sections of other packages.
        """
        sections = {
            "Held-out games": [*([self.held_out()] if self.results["counts"]["train"] else []), self.measures()],
            "Questions and reward within games": [self.correlations()],
            **{section.heading: section.tables for section in added},
            "Held-out games by checkpoint": [self.checkpoints()],
            "Runs": [self._runs()],
        }
        filled = {name: [table for table in tables if table.rows or table.others] for name, tables in sections.items()}
        return {name: tables for name, tables in filled.items() if tables}

    # -- the first screen

    def held_out(self) -> Table:
        """Returns the main measures before and after training, or of an evaluation, per arm and partner."""
        caption = "Held-out games: before → after training, and the change on the games played both times, with its 95% interval."
        if not self.results["counts"]["train"]:
            caption = "Held-out games, with 95% intervals."
        main = [name for name in self._measures if self._is_main(name)]
        return held_out(self.results["held_out"], main, caption, self._palette, "partner")

    def training(self) -> Table:
        """Returns the means of the first and last tenth of training, per arm."""
        results = self.results
        rows = []
        for name in results["arms"]:
            runs = [run for run in results["runs"] if run["arm"] == name]
            row = {"arm": name, "runs": len(runs), "dialogues": sum(run["phases"].get(TRAIN, 0) for run in runs)}
            rows.append({**row, "ends": results["ends"].get(name, {})})

        def end(name: str, side: str) -> Column:
            def show(row: Row) -> str | TableCell:
                return with_interval(row["ends"][name][side]) if name in row["ends"] else DASH

            return Column(f"{name}, {side} tenth", show)

        ends = [end(name, side) for name in ("questions", "reward") for side in ("first", "last")]
        return Table(
            "Training: the first and the last tenth of the steps; 95% intervals over games.",
            [self._arm(), number("runs"), number("dialogues"), *ends],
            rows if any(row["ends"] for row in rows) else [],
        )

    def partners(self) -> Table:
        """Returns the partner's faults and the reward, per phase and checkpoint."""
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
            Column("reward without faults", lambda row: with_interval(row["clean_reward"])),
            number("clean", "dialogues without faults"),
            *map(fault, names),
        ]
        return Table(
            "Partner faults (intended ones included), as shares of the opportunities; and the reward of dialogues without faults, with 95% "
            "intervals over games.",
            columns,
            rows if names else [],
        )

    def references(self) -> Table:
        rows = [{"name": name, **line, **line["reward"]} for name, line in self.results["references"].items()]
        columns = [
            Column("plan", lambda row: words(row["name"]), prose=True),
            Column("reward", with_interval),
            number("n"),
            prose("about", "description"),
        ]
        human = " and of people" if "human" in self.results["references"] else ""
        return Table(
            f"Reference rewards of plans made without a dialogue{human}, with 95% intervals over games.",
            columns,
            rows,
        )

    def measures(self) -> Table:
        """Returns the other measures on held-out games, per arm, partner and measure."""
        columns = [
            self._arm(),
            prose("condition", "partner"),
            Column("measure", lambda row: self._measures[row["measure"]]["title"], prose=True),
            Column("better", lambda row: _BETTER[self._measures[row["measure"]]["better"]], prose=True),
            Column("before → after", moved),
            prose("over", "interval over"),
            p_of("p", "p of no change"),
        ]
        others = [row for row in self.results["held_out"] if not self._is_main(row["measure"])]
        caption = (
            "Other measures. If some games lack a measure, its change is over games that have it both times, and may differ from the "
            "difference of the means. p is not corrected for the number of measures."
        )
        return Table(caption, columns, (), others)

    def correlations(self) -> Table:
        """Returns the correlation of questions and reward among dialogues of one game, per arm."""
        columns = [
            self._arm(),
            prose("when", "played"),
            Column("correlation", with_interval),
            number("n", "dialogues"),
            number("clusters", "games"),
        ]
        caption = (
            "Correlation of questions and reward among dialogues of one game, run and checkpoint, with 95% jackknife intervals over games. "
            "It does not show causation: a policy may ask more because its plan was rejected, and an early agreement leaves no time to ask. "
            "Forced questions (slim-rl evaluate --mode forced:3) measure the effect of asking."
        )
        return Table(caption, columns, self.results["correlations"])

    def checkpoints(self, minimum: int = 3) -> Table:
        """Returns the means at every checkpoint, for arms with at least `minimum` checkpoints."""
        rows = self.results["checkpoints"]
        times = Counter((row["arm"], row["partner"]) for row in rows)
        columns = [
            self._arm(),
            prose("partner"),
            Column("checkpoint", _checkpoint, prose=True),
            number("runs"),
            *(self._measured(measure.name) for measure in shown_in("first screen") if measure.name in self._measures),
        ]
        more = [row for row in rows if times[row["arm"], row["partner"]] >= minimum]
        return Table("Held-out games by checkpoint; 95% intervals over games.", columns, more)

    def compared(self) -> Table:
        """Returns the differences between evaluated cells, per pair."""

        def p(name: str) -> Column:
            return Column("p", lambda row: p_value(row["measures"][name]["p"]))

        columns = [self._arm("second", "cell"), self._arm("first", "baseline"), number("games")]
        for measure in shown_in("first screen"):
            if measure.name in self._measures and measure.role == "primary":
                columns += [self._measured(measure.name, signed=True), p(measure.name)]
        caption = (
            "Cell minus baseline on the games that both played, with 95% t intervals over games, and p of the sign-flip permutation test, not "
            "corrected for the number of pairs. Compared cells differ in policy, partner or mode only."
        )
        return Table(caption, columns, self.results["compared"])

    def _runs(self) -> Table:
        return Table(
            "Dialogues read.",
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
        counts = [number("lines"), number("dialogues"), number("incomplete", "incomplete lines")]
        others = [number("unreadable", "not JSON"), number("foreign", "not dialogues")]
        return Table("Log files.", [prose("path", "file"), *counts, *others], self.results["files"])

    # -- columns of arms and measures

    def _arm(self, key: str = "arm", head: str = "arm") -> Column:
        return arm(self._palette, key, head)

    def _is_main(self, measure: str) -> bool:
        """Returns True if the measure is shown without unfolding."""
        return self._measures[measure]["role"] == "primary" or "first screen" in MEASURES[measure].shown

    def _measured(self, name: str, signed: bool = False) -> Column:
        """Returns the column of one of a row's measures."""
        measure = self._measures[name]
        return Column(measure["title"], lambda row: with_interval(row["measures"][name], measure["share"], signed))


_BETTER = {"up": "more", "down": "less", "": DASH}


def _checkpoint(cell: Row) -> str:
    step = cell["step"]
    return str(cell["phase"]) + (f", step {step:.0f}" if known(step) else "")


def _steps(run: Row) -> str:
    return f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH
