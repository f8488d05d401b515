"""Leaderboard: results of several models in the benchmark's suites, as a page, Markdown and CSV.

All figures are computed from replayed dialogues (`file.read`); only names and API costs are taken from the files.
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
    "Every dialogue was replayed with the recorded policy's messages and the suite's scripted partner; messages, end and reward were as "
    "recorded. Means are over a suite's games, with 95% intervals over games. Net reward is reward minus the cost of the questions. Gap: net "
    "reward of the ideal asker minus the model's, as the sum of four parts: number of questions (count), games in which it asks them "
    f"(stopping), choice of questions, and plan. API costs are stated by each file, unverified. Never train on these games: {CANARY}."
)
_COLUMNS = {
    "net_reward": "net reward",
    **{name: loss.short for name, loss in LOSSES.items()},
    "questions": "questions per game",
    "errors": "refused turns per game",
}


def write(results: Sequence[Result], folder: Path, command: str, people: Path | None = None) -> Iterator[str]:
    """Writes leaderboard.html, README.md and leaderboard.csv; yields the page's sentences.

    Args:
        people: DialOp's file of recorded human games, for one more line; None: no such line.

    Raises:
        DataError: two results have one name, or `people` cannot be used.
    """
    names = [result.model for result in results]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"Two results are called {twice}. Play one of them with another slim-rl lab bench --name.")
    page = _page(results, command, people)
    write_atomically(folder / "leaderboard.csv", pd.DataFrame(_rows(results)).to_csv(index=False))
    write_atomically(folder / "leaderboard.html", page.html())
    write_atomically(folder / "README.md", page.markdown())
    yield from page.sentences


def _page(results: Sequence[Result], command: str, people: Path | None) -> Page:
    suites: dict[str, list[tuple[Result, SuiteScores]]] = {}
    for result in results:
        for scored in result.scores:
            suites.setdefault(scored.suite.name, []).append((result, scored))
    return Page(
        title=TITLE,
        sentences=list(_sentences(results, suites)),
        figures=[],
        sections={words(name): [_suite_table(entries)] for name, entries in sorted(suites.items())},
        origin=f"Made by slim_rl {__version__} with `{command}`.",
        method=METHOD,
        tables_first=[_overview(results, sorted(suites)), *_people(people, results)],
        sources=[_sources(results)],
    )


def _sentences(results: Sequence[Result], suites: Mapping[str, Sequence[tuple[Result, SuiteScores]]]) -> Iterator[str]:
    yield f"{count(len(results), 'model')} in {count(len(suites), 'suite')}."
    for name, entries in sorted(suites.items()):
        highest = max(each.numbers["net_reward"].value for _, each in entries)
        best = [result.model for result, each in entries if isclose(each.numbers["net_reward"].value, highest)]
        cost = entries[0][1].suite.price
        yield f"{words(name)}, question cost {cost:g}: highest net reward {plain(highest)}, by {listed(best)}."


def _overview(results: Sequence[Result], suites: Sequence[str]) -> Table:
    """Returns each model's net reward, one column per suite."""

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


def _suite_table(entries: Sequence[tuple[Result, SuiteScores]]) -> Table:
    """Returns one row per model, by falling net reward."""

    def shown(name: str, head: str) -> Column:
        return Column(head, lambda row: with_interval(row[name]) if name in row else DASH)

    rows: list[dict[str, Any]] = [
        {
            "model": result.model,
            **_numbers(scored),
            "cost": scored.spent.get("cost_usd"),
            "calls": scored.spent.get("calls"),
        }
        for result, scored in sorted(entries, key=lambda each: -each[1].numbers["net_reward"].value)
    ]
    suite = entries[0][1].suite
    usage = [Column("cost, $", lambda row: DASH if row["cost"] is None else f"{row['cost']:.2f}")]
    usage += [Column("calls", lambda row: DASH if row["calls"] is None else f"{row['calls']:,.0f}")]
    caption = f"{words(suite.name)}: {count(len(suite.rows), 'game')}, question cost {suite.price:g}, version {suite.version}."
    return Table(caption, [prose("model"), *(shown(*one) for one in _COLUMNS.items()), *usage], rows)


def _numbers(scored: SuiteScores) -> dict[str, dict[str, Any]]:
    return {name: {"value": mean.value, "low": mean.low, "high": mean.high} for name, mean in scored.numbers.items()}


def _people(people: Path | None, results: Sequence[Result]) -> list[Table]:
    """Returns a table of the reward of people, in other games than the suites'."""
    if people is None or not results:
        return []
    played = list(dict.fromkeys(one.suite.config.environment for each in results for one in each.scores))
    recorded = (each for each in played if measured(game_of(each)).people(people, []))
    line = reference_lines([], people, next(recorded, played[0]))["human"]
    caption = "Reward of people in other games, under their rules, with its 95% interval over games."
    return [
        Table(
            caption,
            [prose("about", "games of"), Column("reward", with_interval), number("n", "games")],
            [{**line, **line["reward"]}],
        )
    ]


def _sources(results: Sequence[Result]) -> Table:
    rows = [
        {
            "model": each.model,
            "policy": ", ".join(dict.fromkeys(_policy(one) for one in each.scores)),
            "made": " ".join(provenance.sentence(entry) for entry in each.entries),
        }
        for each in results
    ]
    return Table(
        "Result files, by their own description.", [prose("model"), prose("policy"), prose("made", "made by")], rows
    )


def _policy(scored: SuiteScores) -> str:
    return ", ".join(f"{key} {value}" for key, value in scored.policy.items() if isinstance(value, str | float | int))


def _rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yields one row per model, suite and measure."""
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
