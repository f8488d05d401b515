"""The leaderboard: the results of several models in the benchmark's suites, on one page, as Markdown and as CSV.

Its figures are those that `bench_file.read` worked out anew; nothing is taken over from a file but names, and what calls cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Any

import pandas as pd

from slim_rl import __version__, provenance
from slim_rl.analysis.page import Page
from slim_rl.analysis.references import reference_lines
from slim_rl.analysis.tables import Column, Row, Table, TableCell, number, prose, with_interval
from slim_rl.environment import game_of
from slim_rl.errors import DataError
from slim_rl.files import write_atomically
from slim_rl.formats import DASH, count, listed, plain, words
from slim_rl.lab.bench.file import Result, SuiteScores
from slim_rl.lab.bench.suites import CANARY
from slim_rl.lab.gap import LOSSES
from slim_rl.measured import measured

TITLE = "How well do models ask?"
METHOD = (
    "Every dialogue was played again: the recorded policy said its words, the suite's scripted partner answered, and words, end and reward "
    "came out as recorded. Means are over a suite's games, with 95% intervals over games. Net reward is the reward less the price of each "
    "question. Lost: what an ideal asker earns more, net of the price, split into how many questions, when it stopped, which questions and its "
    f"plan; the parts sum to the whole. What calls cost is each file's own account. Never train on these deals: {CANARY}."
)
_COLUMNS = {
    "net_reward": "net reward",
    **{name: loss.short for name, loss in LOSSES.items()},
    "questions": "questions a game",
    "errors": "refused turns a game",
}


def write(results: Sequence[Result], folder: Path, command: str, people: Path | None = None) -> Iterator[str]:
    """Writes leaderboard.html, README.md and leaderboard.csv; yields the page's sentences.

    Args:
        people: DialOp's file of recorded human games, for a line of theirs.

    Raises:
        DataError: two results have one name, or `people` cannot be used.
    """
    names = [result.model for result in results]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"Two results are called {twice}: play one of them by another slim-rl lab bench --name.")
    page = _page(results, command, people)
    write_atomically(folder / "leaderboard.csv", pd.DataFrame(_rows(results)).to_csv(index=False))
    write_atomically(folder / "leaderboard.html", page.html())
    write_atomically(folder / "README.md", page.markdown())
    yield from page.sentences


def _page(results: Sequence[Result], command: str, people: Path | None) -> Page:
    suites: dict[str, list[tuple[Result, SuiteScores]]] = {}
    for result in results:
        for found in result.scores:
            suites.setdefault(found.suite.name, []).append((result, found))
    return Page(
        title=TITLE,
        sentences=list(_sentences(results, suites)),
        figures=[],
        sections={words(name): [_suite_table(found)] for name, found in sorted(suites.items())},
        origin=f"Made by slim_rl {__version__} with `{command}`.",
        method=METHOD,
        tables_first=[_overview(results, sorted(suites)), *_people(people, results)],
        sources=[_sources(results)],
    )


def _sentences(results: Sequence[Result], suites: Mapping[str, Sequence[tuple[Result, SuiteScores]]]) -> Iterator[str]:
    yield f"{count(len(results), 'model')} in {count(len(suites), 'suite')}."
    for name, found in sorted(suites.items()):
        most = max(each.numbers["net_reward"].value for _, each in found)
        best = [result.model for result, each in found if isclose(each.numbers["net_reward"].value, most)]
        earns = f"{best[0]} earns" if len(best) == 1 else f"{listed(best)} earn"
        yield f"{words(name)}, at {found[0][1].suite.price:g} a question: {earns} most, {plain(most)} net of what is asked."


def _overview(results: Sequence[Result], suites: Sequence[str]) -> Table:
    """Each model's net reward, suite by suite."""

    def net(suite: str) -> Column:
        def show(row: Row) -> str | TableCell:
            return with_interval(row["scores"][suite]["net_reward"]) if suite in row["scores"] else DASH

        return Column(words(suite), show)

    def rank(each: Result) -> tuple[int, float]:
        nets = [one.numbers["net_reward"].value for one in each.scores]
        return -len(nets), -sum(nets)

    results = sorted(results, key=rank)
    rows = [{"model": each.model, "scores": {one.suite.name: _numbers(one) for one in each.scores}} for each in results]
    return Table("Net reward, with 95% intervals over games.", [prose("model"), *map(net, suites)], rows)


def _suite_table(found: Sequence[tuple[Result, SuiteScores]]) -> Table:
    """One row a model, the best first."""

    def shown(name: str, head: str) -> Column:
        return Column(head, lambda row: with_interval(row[name]) if name in row else DASH)

    rows: list[dict[str, Any]] = [
        {
            "model": result.model,
            **_numbers(scored),
            "cost": scored.spent.get("cost_usd"),
            "calls": scored.spent.get("calls"),
        }
        for result, scored in sorted(found, key=lambda each: -each[1].numbers["net_reward"].value)
    ]
    suite = found[0][1].suite
    paid = [Column("cost, $", lambda row: DASH if row["cost"] is None else f"{row['cost']:.2f}")]
    paid += [Column("calls", lambda row: DASH if row["calls"] is None else f"{row['calls']:,.0f}")]
    caption = (
        f"{words(suite.name)}: {count(len(suite.rows), 'game')} at {suite.price:g} a question; version {suite.version}."
    )
    return Table(caption, [prose("model"), *(shown(*one) for one in _COLUMNS.items()), *paid], rows)


def _numbers(scored: SuiteScores) -> dict[str, dict[str, Any]]:
    return {name: {"value": mean.value, "low": mean.low, "high": mean.high} for name, mean in scored.numbers.items()}


def _people(people: Path | None, results: Sequence[Result]) -> list[Table]:
    """What people reached, of whose games these are not."""
    if people is None or not results:
        return []
    played = list(dict.fromkeys(one.suite.config.environment for each in results for one in each.scores))
    recorded = (each for each in played if measured(game_of(each)).people(people, []))
    line = reference_lines([], people, next(recorded, played[0]))["human"]
    caption = "For comparison, and not of these deals: the reward of people on their own ones, by their own rules, with its 95% interval over games."
    return [
        Table(
            caption,
            [prose("about", "whose games"), Column("reward", with_interval), number("n", "games")],
            [{**line, **line["reward"]}],
        )
    ]


def _sources(results: Sequence[Result]) -> Table:
    rows = [
        {
            "model": each.model,
            "policy": ", ".join(dict.fromkeys(_policy(one) for one in each.scores)),
            "made": " ".join(provenance.sentence(entry) for entry in each.made),
        }
        for each in results
    ]
    return Table(
        "The results, as their files describe themselves.", [prose("model"), prose("policy"), prose("made")], rows
    )


def _policy(scored: SuiteScores) -> str:
    return ", ".join(f"{key} {value}" for key, value in scored.policy.items() if isinstance(value, str | float | int))


def _rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """One a model, suite and measure."""
    for result in results:
        for scored in result.scores:
            suite = scored.suite
            about = {"model": result.model, "suite": suite.name, "version": suite.version, "price": suite.price}
            for name, mean in scored.numbers.items():
                yield {
                    **about,
                    "measure": name,
                    "value": mean.value,
                    "low": mean.low,
                    "high": mean.high,
                    "games": mean.n,
                }
            for name, spent in scored.spent.items():
                yield {**about, "measure": name, "value": spent}
